"""Code rewards: programs run in fenced processes, their outputs compared outside of these.

- A judgement is computed by `driver` and what it calls, never in a program's process: that gets one
  input at a time and gives back data (`encoding`).
- A program that fails is a wrong answer, 0.0; what is no fault of it is an exception.
- `zygote` and `child` run in processes of their own; they and `encoding` import nothing heavy.
"""
