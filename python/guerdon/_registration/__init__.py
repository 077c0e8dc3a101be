"""What a reward function is, settled before anything runs.

`spec` is one function as the rest of the package sees it: its name, contract, lane and policy. `callables` tells kinds of
callables apart, `signature` reads what one asks for, `options` and `fences` check what was said of it. `items` is the list
that a dispatcher is made of: what may stand in it, and what its functions must agree on.
"""
