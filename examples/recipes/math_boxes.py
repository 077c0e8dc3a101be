"""MATH: the reference is the box of the solution. math-verify decides the pairs that Guerdon can't.

Prints:
    [1.0, 1.0, 0.0]
"""

from guerdon import Dispatcher, rewards

rows = [
    {"prompt": "Solve $3x = 2$.", "solution": r"Since $3x = 2$, we have $x = \boxed{\frac{2}{3}}$."},
    {"prompt": "Solve $x^2 = 12$, $x > 0$.", "solution": r"The root is $\boxed{2\sqrt{3}}$, for it is positive."},
    {"prompt": "What is $7 + 5$?", "solution": r"It is $\boxed{12}$."},
]
completions = [r"Dividing, $x = \boxed{\dfrac{4}{6}}$.", r"So \boxed{\sqrt{12}}.", r"\boxed{13}"]
functions = [rewards.math_reward(timeout=20)]

with Dispatcher(functions) as dispatcher:
    result = dispatcher.score(completions=completions, solution=[row["solution"] for row in rows])
print(result.rewards.ravel().tolist())
