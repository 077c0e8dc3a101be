"""GSM8K: the reference comes after ####, and the completion must have a box.

Prints:
    [1.0, 1.0, 0.0]
"""

from guerdon import Dispatcher, rewards

rows = [
    {"prompt": "Three shelves hold 24 books each. How many books?", "answer": "3 * 24 = <<3*24=72>>72 books.\n#### 72"},
    {"prompt": "A pen costs $1.50. What do 1,000 cost?", "answer": "1000 * 1.5 = $<<1000*1.5=1500>>1500.\n#### 1,500"},
    {"prompt": "Of 40 eggs 5 break. How many are left?", "answer": "40 - 5 = <<40-5=35>>35 eggs.\n#### 35"},
]
completions = [r"Each holds 24, so \boxed{72}.", r"That is \boxed{\$1500}.", r"\boxed{45}"]
functions = [rewards.math_reward(column="answer")]

with Dispatcher(functions) as dispatcher:
    result = dispatcher.score(
        prompts=[row["prompt"] for row in rows], completions=completions, answer=[row["answer"] for row in rows]
    )
print(result.rewards.ravel().tolist())
