"""Trainers that call a dispatcher's functions: `column`, what they call; `batches`, what they
start; `context`, who calls; `call_stack`, where the caller doesn't say."""
