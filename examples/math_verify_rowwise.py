"""TRL's math reward, unmodified, with a deadline for each sample.

``trl.rewards.accuracy_reward`` takes the whole batch, so one answer that sympy chews on for minutes holds up all others.
Its rows are independent: ``rowwise=True`` says so, and Guerdon calls it with one row at a time in processes that it can
kill.

    pip install 'guerdon[trl]' 'math-verify[antlr4_13_2]'
    python examples/math_verify_rowwise.py
"""

from __future__ import annotations

from trl.rewards import accuracy_reward

from guerdon import Dispatcher, reward

SOLUTION = r"\frac{63}{400}"
COMPLETIONS = [
    r"The chance is $\boxed{\frac{63}{400}}$.",
    r"The chance is $\boxed{0.1575}$.",
    r"The chance is $\boxed{\frac{64}{400}}$.",
    r"I don't know.",
    r"The chance is $\boxed{(((10^{10})^{10})^{10})^{10}!}$.",  # nothing says that a model's answer can be computed
]


def main() -> None:
    accuracy = reward(accuracy_reward, rowwise=True, timeout=5)
    with Dispatcher([accuracy]) as dispatcher:
        result = dispatcher.score(
            prompts=["…"] * len(COMPLETIONS),
            completions=[[{"role": "assistant", "content": text}] for text in COMPLETIONS],
            solution=[f"${SOLUTION}$"] * len(COMPLETIONS),
            num_generations=len(COMPLETIONS),
        )
    print(result)
    for text, value in zip(COMPLETIONS, result.rewards.ravel(), strict=True):
        print(f"{value:>4}  {text}")
    for failure in result.failures():
        print(failure)


if __name__ == "__main__":
    main()
