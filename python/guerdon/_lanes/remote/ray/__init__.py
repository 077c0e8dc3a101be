"""A dispatcher over the nodes of a Ray cluster.

`options` has what users write. On the driver: `cluster` starts and ends it all and follows the
nodes that come and go, `node` is one node's agent and `pump` its messages, `nodes` reads Ray's list
of nodes, `connection` connects to Ray, `reasons` words what Ray raises. On each node: `actor` holds
the agent, `functions_check` tries the functions; `versions` are compared between both.
"""
