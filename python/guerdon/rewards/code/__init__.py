"""Code rewards: programs run in fenced processes, their outputs compared outside of these.

- A judgement is computed in `trusted`, never in a program's process: that gets one input at a time
  and gives back data (`child.encoding`).
- A program that fails is a wrong answer, 0.0; what is no fault of it is an exception.
- `zygote` runs programs on this machine, `remote` elsewhere; `child` is in their processes.
"""
