"""What a `guerdon.Dispatcher` is made with, does and says of itself, beside the engine.

`functions` checks its list, `cluster_option` says where calls run, `scoring` takes batches and
samples, `stats` is what `Dispatcher.stats` holds.
"""
