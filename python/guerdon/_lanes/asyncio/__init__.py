"""The Python side of the asyncio lane.

`event_loop` is one of its loops, `loop_runner` one function on a loop, `loop_setup` the function's
`setup()` and `close()`, `loop_tasks` the engine's tasks beside user code, `blocked_loops` has the
warnings about blocking code.
"""
