"""Trainers that call a dispatcher's functions: `column` has the callables; `batches` has the
batches that they start; `context`, who calls; `call_stack`, where the caller doesn't say."""
