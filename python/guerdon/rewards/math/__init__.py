"""Math answers: what the native decider doesn't know goes to math-verify, in a worker.

`verify` asks math-verify, `reward` is the item of a dispatcher's list, `helper` the worker of plain
calls.
"""
