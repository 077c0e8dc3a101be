"""The lanes that run user code in this process: their Python threads and event loops.

`thread_supervisor` starts them when the engine asks; `worker_thread` is one thread of the thread
lane. `event_loop` is one loop of the asyncio lane, `loop_runner` one function on it, `loop_setup`
its `setup()` and `close()`, `loop_tasks` the engine's tasks beside user code, `blocked_loops` the
warnings of what blocks it. `lane_threads`, `warn`, `arguments`, `call_results` and `stacks` (where
user code is) are what both lanes share.
"""
