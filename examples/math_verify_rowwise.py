"""TRL's math reward, unmodified, with a timeout for each sample.

``trl.rewards.accuracy_reward`` takes the whole batch, one answer after another. Its own alarms end
an answer that sympy can't compute after 5 to 10 s and call it wrong. Its rows are independent.
``rowwise=True`` makes Guerdon call the function with one row at a time, in processes that can be
killed. After three attempts of 3 s it is undecided whether the answer is right, and the result
shows a timeout. (The first call in a process also builds parsers, which may take as long on a busy
machine: hence the retries.)

    pip install '.[trl]' 'math-verify[antlr4_13_2]'
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
    r"The chance is $\boxed{2^{2^{2^{2^{2^{2}}}}}}$.",  # models write such things
]


def main() -> None:
    accuracy = reward(accuracy_reward, rowwise=True, timeout=3, retries=2)
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
