"""Calling a reward function and reading its answer, the same on every lane. Imports nothing of guerdon.

- `call`: one function as a lane calls it, and what the call records.
- `returned_values`: what it returned, as reward, abstention or error.
- `reasons`, `tracebacks`: what it raised, as text.
- `http_errors`: what an exception says of the server behind the call.
"""
