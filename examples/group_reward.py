"""A group reward sees all completions of one prompt at once, in order.

Here it rewards answers that the other completions did not give.

    python examples/group_reward.py
"""

from __future__ import annotations

import re

from guerdon import Dispatcher, group_reward, reward


@reward(timeout=1.0)
def correct(completion: str, answer: str) -> float:
    return float(re.fullmatch(rf"(it is )?{re.escape(answer)}", completion.strip()) is not None)


@group_reward
def unlike_others(completions: list[str]) -> list[float]:
    return [1 / completions.count(completion) for completion in completions]


PROMPTS = ["Name a prime below 10: ", "Name a colour of the French flag: "]
ANSWERS = ["7", "blue"]
COMPLETIONS = [["7", "7", "it is 7", "9"], ["blue", "red", "blue", "white"]]


def main() -> None:
    size = len(COMPLETIONS[0])
    with Dispatcher([correct, unlike_others], weights=[1.0, 0.5]) as dispatcher:
        result = dispatcher.score(
            prompts=[prompt for prompt in PROMPTS for _ in range(size)],
            completions=[completion for group in COMPLETIONS for completion in group],
            answer=[answer for answer in ANSWERS for _ in range(size)],
            num_generations=size,
        )
    print(result)
    for prompt, completions, totals, advantages in zip(
        PROMPTS, COMPLETIONS, result.total, result.advantages(), strict=True
    ):
        print(prompt)
        for completion, total, advantage in zip(completions, totals, advantages, strict=True):
            print(f"  {completion:<8} {total:.2f}  advantage {advantage:+.2f}")


if __name__ == "__main__":
    main()
