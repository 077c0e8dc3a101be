"""The published asynchronous-reward recipe, scaled down, in TRL's trainer: ``make bench-training``.

- `run`: one run of one mode, a process of its own.
- `bounds`: what each mode could take at best.
- `__main__`: several runs of each mode by turns, and the table of them.
"""
