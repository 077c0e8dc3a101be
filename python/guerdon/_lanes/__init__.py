"""The lanes that run user code in this process: their Python threads and event loops.

`keeper` starts them when the engine asks; `thread` is one thread of the thread lane; `aio` one event loop of the asyncio
lane, `runner` one function on it, `stateful` its `setup()` and `close()`, `tasks` what of ours runs beside user code there;
`blocking` says what keeps it from turning; `own` tells their threads, `warn` speaks for them; `arguments` and `cells` are what
both share; `stacks` says where user code stands.
"""

from guerdon._lanes.keeper import Keeper, start_lanes
from guerdon._lanes.own import is_own

__all__ = ["Keeper", "is_own", "start_lanes"]
