"""One batch, from the arguments of a call to the engine.

- `submission`: checks a batch and submits it whole, or opens it; `appending`: adds samples to it.
- `columns`: what a batch brings, one value per sample; `layout` and `column_routing`: which of them
  each function gets.
- `trainer_state`: the trainer's state as functions see it; `token_counts`: tokens, before the calls.
- `async_waiters`: coroutines that wait for news of a batch.
"""
