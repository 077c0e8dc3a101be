"""Definitions of reward functions, complete before anything runs.

- `spec`: one function for the rest of the package: name, contract, lane and policy.
- `callables`, `signature`: what kind of callable it is, and which values it takes.
- `options`, `resource_limits`: checks of what `reward(…)` was given.
- `function_list`: the list of a dispatcher: what may be in it, and what must agree.
- `lane_plan`: what a lane adds to a function, as the rest of the package sees it.
- `serialization`: how it gets to workers; `cache`: which version of it an outcome is of.
"""
