"""What runs where user code runs: in worker processes, and on the lanes' threads.

Imports nothing of guerdon outside this folder.

- The zygote: `_zygote` starts the `stem`, which never runs user code, and that the `loader`, which does `loading` and then
  `forking`; both answer the engine's requests (`control`).
- A worker: `worker` runs calls, told by `wire` what they are, and shows in the `page` what is in hand. `expiry` is the exception
  at a timeout, `fences` are the limits of one function, `marks` tell whose output is whose, `stack` says where it stands,
  `system` calls Linux.
- On every lane: `calls` is one function as it is called, `values` are cells of what it returned, `reasons` texts of what it
  raised, `tracebacks` where, `answers` what that tells of a server.
"""
