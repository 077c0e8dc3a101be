"""One batch: from the arguments of a call to the engine, and from its cells to a result.

- `columns`, `bounds`: its arguments; `submission` submits it, `appending` adds samples to it.
- `single_samples`: samples that are scored one by one; `coalescing` runs them together.
- `layout`, `column_routing`: the columns of each function; `kept_columns`: those of a journal.
- `trainer_state`: the trainer's state as functions see it; `token_counts`: tokens of calls.
- `pending`: waiting for it; `result_builder`, `failures`, `failure_rate`: its result.
- `trainer`: one callable per function for a trainer that calls them in turn.
"""
