"""One batch, from the arguments of a call to its result.

- `given`: the arguments, as the dispatcher's methods got them; `columns`: what they bring, one value a sample.
- `layout`: where the functions' calls get their values from; `uses`: what each function gets of this batch.
- `trainer_state`: the trainer's state as functions see it; `tokens`: counted before the calls.
- `admission`: into the engine, whole or open for more; `intake`: the samples of an open batch.
- `sleepers`: coroutines that wait for news of it.
- `rules`: what a dispatcher makes of a result; `records`: what functions recorded; `failures`: when they are too many.
"""
