"""A judge for partial credit, called only for answers that are not fully right.

Prints:
    [[1.0, 10.0], [0.0, 3.0], [0.0, 1.0]]
    2 requests
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from fake_judge import serve

from guerdon import Dispatcher, judge, parse, reward


@reward(timeout=2)
def correct(completion: str, answer: str) -> float:
    return float(completion.strip() == answer)


partial = judge(
    base_url=f"{serve()}/v1",
    model="small",
    prompt="Grade from 0 to 10 in <score></score>: {completion}",
    parse=parse.tag("score", range=(0, 10)),
    run_if={"correct": "< 1"},
    otherwise=10.0,
    name="partial",
)

with Dispatcher([correct, partial], weights=[1.0, 0.05]) as dispatcher:
    result = dispatcher.score(
        prompts=["6 * 7 ="] * 3, completions=["42", "It is 41.", "None"], answer=["42"] * 3, num_generations=3
    )
print(result.rewards[0].tolist())
print(result.usage["partial"]["requests"], "requests")
