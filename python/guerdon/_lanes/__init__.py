"""The Python side of each lane.

- Here: what runs user code in this process. `thread_supervisor` starts it when the engine asks;
  `worker_thread` is one thread of the thread lane.
- `lane_threads`, `arguments`, `call_results` and `stacks` (where user code is) are what the thread
  and asyncio lanes share.
- `asyncio`, `http`, `native`: the other lanes; `remote`: engines elsewhere.
- `recycling`: when workers of the process lane are replaced.
"""
