"""The lanes that run user code in this process: their Python threads and event loops.

`supervisor` starts them when the engine asks; `thread` is one thread of the thread lane; `aio` one event loop of the asyncio
lane, `runner` one function on it, `stateful` its `setup()` and `close()`, `tasks` what of ours runs beside user code there;
`blocking` says what keeps it from turning; `own` tells their threads, `warn` speaks for them; `arguments` and `cells` are what
both share; `stacks` says where user code stands.
"""

from guerdon._lanes.lane_threads import is_lane_thread
from guerdon._lanes.thread_supervisor import ThreadSupervisor, start_lanes

__all__ = ["ThreadSupervisor", "is_lane_thread", "start_lanes"]
