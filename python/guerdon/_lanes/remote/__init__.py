"""Engines whose calls run on nodes: other machines, or one engine for all ranks of a host.

`engine_setup` is what an agent needs to run the functions of an engine, as bytes; `agent` is the
agent's process; `plan` what `Dispatcher(cluster=...)` becomes. The transports carry bytes between
a driver's and an agent's `guerdon._native.Link`: nothing else is theirs.
"""
