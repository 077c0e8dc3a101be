"""A dispatcher over the nodes of a Ray cluster.

`options` has what users write. On the driver: `cluster` starts and ends the agents and follows
changes of the nodes, `node` is one node's agent and `pump` its messages, `nodes` reads Ray's list
of nodes, `connection` connects to Ray, `reasons` has texts for Ray's exceptions. On each node:
`actor` holds the agent, `functions_check` tries the functions; `versions` are compared between
both.
"""
