"""One batch, from the arguments of a call into the engine, and from its cells to a result.

- `columns`, `bounds`: what it is given; `submission` submits it, `appending` adds samples to it.
- `single_samples`: samples that are scored one by one; `coalescing`: what runs them together.
- `layout`, `column_routing`: which columns each function gets; `kept_columns`: which a journal.
- `trainer_state`: the trainer's state as functions see it; `token_counts`: tokens of calls.
- `pending`: what waits for it; `result_builder`, `failures`, `failure_rate`: what comes of it.
- `trainer`: one callable per function for a trainer that calls them in turn.
"""
