"""The Python side of the asyncio lane.

`event_loop` is one of its loops, `loop_runner` one function on it, `loop_setup` its `setup()` and
`close()`, `loop_tasks` the engine's tasks beside user code, `blocked_loops` the warnings of what
blocks it.
"""
