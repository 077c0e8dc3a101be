"""A judge that compares the completions of a group, each pair in both orders.

Prints:
    [0.09, 0.91, 0.5]
    6 requests
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from fake_judge import serve

from guerdon import Dispatcher, pairwise

better = pairwise(
    base_url=f"{serve()}/v1",
    model="small",
    prompt="{prompt} Which answer is better?\nA: {completion_a}\nB: {completion_b}\nSay [[A]], [[B]] or [[C]] for a tie.",
    schedule="all",
    name="better",
)

with Dispatcher([better]) as dispatcher:
    result = dispatcher.score(
        prompts=["Why is the sky blue?"] * 3,
        completions=["Because.", "Rayleigh scattering of sunlight.", "It reflects the sea."],
        num_generations=3,
    )
print([round(score, 2) for score in result.rewards.ravel().tolist()])
print(result.usage["better"]["requests"], "requests")
