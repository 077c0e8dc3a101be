"""A training loop of your own: samples are added as they are generated, and groups come as they
complete.

Prints:
    group 1: [0.5, -0.5]
    group 0: [0.0, 0.0]
"""

import asyncio

from guerdon import Dispatcher, reward


@reward(timeout=10)
async def slow_for_long(completion: str) -> float:
    await asyncio.sleep(0.2 * len(completion))
    return float(completion.count("a"))


with Dispatcher([slow_for_long]) as dispatcher:
    batch = dispatcher.stream(num_generations=2)
    batch.add(completions=["aaaa", "aaaa"])  # a generator's first group
    batch.add(completions=["a", "b"])
    batch.finish()
    for group in batch.groups():
        rewards = group.rewards[:, 0]
        print(f"group {group.index}: {(rewards - rewards.mean()).tolist()}")
