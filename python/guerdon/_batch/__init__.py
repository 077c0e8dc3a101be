"""One batch, from the arguments of a call to the engine.

- `submission`: checks a batch and submits it whole, or opens it; `appending`: adds samples to it.
- `single_samples`: samples that are scored one by one; `coalescing`: what runs them together.
- `layout` and `column_routing`: which columns each function gets.
- `trainer_state`: the trainer's state as functions see it; `token_counts`: tokens, before the
  calls.
"""
