"""The published asynchronous-reward recipe, scaled down, in TRL's trainer: ``make bench-training``.

- `run`: one run of one mode, in a separate process.
- `bounds`: the best possible time of each mode.
- `__main__`: several runs of each mode by turns, and the table of them.
"""
