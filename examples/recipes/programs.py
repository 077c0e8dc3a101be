"""Programs, scored by the share of their cases that pass: text in and out, or calls of a function.

Prints:
    [1.0, 0.5, 0.0]
    case 1: it returned 2, expected -2
"""

from guerdon import Dispatcher, code_reward

rows = [
    {"prompt": "Add two numbers.", "cases": [{"stdin": "1 2", "stdout": "3"}, {"stdin": "5 5", "stdout": "10"}]},
    {"prompt": "Write double(x).", "cases": [{"fn": "double", "args": [n], "expected": 2 * n} for n in (1, -1)]},
    {"prompt": "Print the input.", "cases": [{"stdin": "a", "stdout": "a"}]},
]
completions = [
    "```python\nprint(sum(map(int, input().split())))\n```",
    "```python\ndef double(x):\n    return abs(2 * x)\n```",
    "I would rather not.",
]
functions = [code_reward(score="share", timeout=10)]

with Dispatcher(functions) as dispatcher:
    result = dispatcher.score(
        prompts=[row["prompt"] for row in rows], completions=completions, cases=[row["cases"] for row in rows]
    )
print(result.rewards.ravel().tolist())
print(result.extra["code/reason"][1])
