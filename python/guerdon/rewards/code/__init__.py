"""Code rewards: programs run in fenced processes, their outputs compared outside of these.

- A judgement is computed in `trusted`, never in a program's process: that gets one input at a time
  and gives back data (`child.encoding`).
- A program that fails is a wrong answer, 0.0; a fault of another party is an exception.
- `zygote` runs programs on this machine, `remote` elsewhere; `child` is imported by the programs'
  own processes.
"""
