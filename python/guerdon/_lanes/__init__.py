"""The Python side of each lane.

- Here: threads and loops that run user code in this process. `thread_supervisor` starts them on the
  engine's request; `worker_thread` is one thread of the thread lane.
- `lane_threads`, `arguments`, `call_results` and `stacks` (the stacks of user code) are shared by
  the thread and asyncio lanes.
- `asyncio`, `http`, `native`: the other lanes; `remote`: engines elsewhere.
- `recycling`: when workers of the process lane are replaced.
"""
