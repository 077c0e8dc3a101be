"""``guerdon serve``: an HTTP server in front of a dispatcher.

- Every request passes `auth`, then `endpoint`: body, JSON, samples, permits, scores, answer.
- A refusal is a `RequestError` (`errors`): a status, a reason, no score.
- Loaded by that command alone: starlette and uvicorn are the extra ``serve``.
"""
