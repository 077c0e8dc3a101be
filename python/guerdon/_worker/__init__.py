"""The worker program: runs reward functions in separate processes. Imports nothing of guerdon.

- `_zygote` starts the `zygote`, which never runs user code. It forks the `loader`, which loads the
  functions (`loaded_functions`) and forks workers (`forking`) on request (`zygote_requests`).
- `worker` runs the calls that arrive over its socket (`wire`) and reports in the `shared_page`,
  with `timeout_signal`, `resource_limits`, `output` and `stack_dump` around each call.
- `invoke` calls a function and reads its answer; the lanes of the trainer's process use it too.
"""
