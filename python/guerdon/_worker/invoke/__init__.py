"""Calling a reward function and reading its answer, the same on every lane. Imports nothing of
guerdon.

- `call`, `records`: one function as a lane calls it, and what the call records.
- `async_detection`, `awaiter`: which functions are async; awaiting what a sync one returned.
- `returned_values`: what was returned, as reward, abstention or error.
- `reasons`, `tracebacks`, `http_errors`: an exception as text, and its facts about a server.
"""
