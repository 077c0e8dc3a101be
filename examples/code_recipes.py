"""Code rewards for rows in the formats of HumanEval, MBPP, LiveCodeBench and APPS, with sample
rows.

    python examples/code_recipes.py             # scores the right programs and wrong ones
    python examples/code_recipes.py --data DIR  # writes the rows there, for guerdon profile

Columns are named as in the dataset, but HumanEval's `prompt`, here `starter`: `prompt` is the
trainer's. `solution` is a completion that must score 1.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from guerdon import code_reward

human_eval = code_reward(name="human_eval", check="test", prelude="starter", extract="whole")
mbpp = code_reward(name="mbpp", check="test_list", prelude="test_setup_code", score="share")
live_code_bench = code_reward(
    name="live_code_bench", cases="public_test_cases", compare="numbers", timeout=20, case_timeout=6
)
apps = code_reward(name="apps", cases="input_output", score="share", compare="tokens")


def block(program: str) -> str:
    """A completion of a chat model with this program."""
    return f"This does it:\n\n```python\n{program}```\n"


def of_human_eval(name: str, starter: str, body: str, asserts: str) -> dict[str, object]:
    """A row: the completion goes on where the prompt ends."""
    test = "METADATA = {}\n\n\ndef check(candidate):\n" + "".join(f"    assert {one}\n" for one in asserts.split("; "))
    return {"prompt": starter, "starter": starter, "test": test, "entry_point": name, "solution": body}


def of_mbpp(text: str, code: str, tests: list[str], setup: str = "") -> dict[str, object]:
    """A row: the tests name the function, and are a case each."""
    return {"prompt": text, "test_list": tests, "test_setup_code": setup, "solution": block(code)}


def of_live_code_bench(
    question: str, program: str, kind: str, cases: dict[str, str], name: str = ""
) -> dict[str, object]:
    """A row: `entry_point` is what `metadata` has as ``func_name``."""
    tests = [{"input": given, "output": wanted, "testtype": kind} for given, wanted in cases.items()]
    return {
        "prompt": question,
        "public_test_cases": json.dumps(tests),
        "entry_point": name,
        "solution": block(program),
    }


def of_apps(question: str, program: str, cases: dict[str, object]) -> dict[str, object]:
    """A row."""
    return {"prompt": question, "input_output": json.dumps(cases), "solution": block(program)}


ROWS: dict[str, list[dict[str, object]]] = {
    "human_eval": [
        of_human_eval(
            "half",
            'def half(x: int) -> int:\n    """Half of x, rounded down."""\n',
            "    return x // 2\n",
            "candidate(4) == 2; candidate(9) == 4; candidate(-3) == -2",
        ),
        of_human_eval(
            "vowels",
            'def vowels(text: str) -> int:\n    """How many vowels a text has."""\n',
            '    return sum(one in "aeiou" for one in text.lower())\n',
            "candidate('banana') == 3; candidate('') == 0; candidate('AEx') == 2",
        ),
        # A test may use a function of the prompt, and the entry point by its name.
        of_human_eval(
            "decode",
            "def encode(text: str) -> str:\n    return text[::-1]\n\n\n"
            'def decode(text: str) -> str:\n    """Undo encode."""\n',
            "    return text[::-1]\n",
            "candidate(encode('abc')) == 'abc'; decode(encode('xyz')) == 'xyz'",
        ),
        of_human_eval(
            "running_max",
            'def running_max(items: list[int]) -> list[int]:\n    """The largest so far."""\n',
            "    found = []\n    for item in items:\n        found.append(max(found[-1], item) if found else item)\n"
            "    return found\n",
            "candidate([1, 3, 2]) == [1, 3, 3]; candidate([]) == []",
        ),
    ],
    "mbpp": [
        of_mbpp(
            "Write a function to find the sum of the digits of a number.",
            "def digit_sum(n):\n    return sum(map(int, str(abs(n))))\n",
            ["assert digit_sum(345) == 12", "assert digit_sum(-12) == 3", "assert digit_sum(0) == 0"],
        ),
        of_mbpp(
            "Write a function that gives what two tuples share, sorted.",
            "def shared(a, b):\n    return tuple(sorted(set(a) & set(b)))\n",
            ["assert shared((3, 4, 5), (4, 3)) == (3, 4)", "assert shared((1,), (2,)) == ()"],
        ),
        of_mbpp(
            "Write a function to find the area of a circle.",
            "import math\n\n\ndef area(r):\n    return math.pi * r * r\n",
            ["assert math.isclose(area(1), 3.14159, rel_tol=1e-4)", "assert area(0) == 0"],
            setup="import math",
        ),
        of_mbpp(
            "Write a function to count each word of a text.",
            "from collections import Counter\n\n\ndef count_words(text):\n    return Counter(text.split())\n",
            ["assert count_words('a b a') == {'a': 2, 'b': 1}", "assert count_words('') == {}"],
        ),
    ],
    "live_code_bench": [
        of_live_code_bench(
            "Print the mean of the numbers.",
            "n = int(input())\nitems = list(map(int, input().split()))\nprint(sum(items) / n)\n",
            "stdin",
            {"3\n1 2 4\n": "2.33333333333\n", "1\n5\n": "5.0\n"},
        ),
        of_live_code_bench(
            "Print how many lines are the same as the first one.",
            "import sys\nfirst, *rest = sys.stdin.read().split('\\n')\nprint(rest.count(first))\n",
            "stdin",
            {"a\nb\na": "1", "x\nx\nx": "2"},
        ),
        of_live_code_bench(
            "Return the indices of the two numbers with this sum.",
            "class Solution:\n    def twoSum(self, nums: list[int], target: int) -> list[int]:\n        seen = {}\n"
            "        for place, number in enumerate(nums):\n            if target - number in seen:\n"
            "                return [seen[target - number], place]\n            seen[number] = place\n",
            "functional",
            {"[2, 7, 11]\n9": "[0, 1]", "[3, 2, 4]\n6": "[1, 2]"},
            name="twoSum",
        ),
        of_live_code_bench(
            "Return the text without its vowels.",
            "class Solution:\n    def strip(self, s: str) -> str:\n"
            "        return ''.join(one for one in s if one not in 'aeiou')\n",
            "functional",
            {'"hello"': '"hll"', '""': '""'},
            name="strip",
        ),
    ],
    "apps": [
        of_apps(
            "Print the sum of two numbers.",
            "print(sum(map(int, input().split())))\n",
            {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]},
        ),
        of_apps(
            "Print the numbers up to n.",
            "for number in range(1, int(input()) + 1):\n    print(number, end=' ')\n",
            {"inputs": ["3\n", "1\n"], "outputs": ["1 2 3", "1"]},
        ),
        of_apps(
            "Return the largest number.",
            "def largest(items):\n    return max(items)\n",
            {"fn_name": "largest", "inputs": [[[3, 9, 2]], [[-1]]], "outputs": [[9], [-1]]},
        ),
        of_apps(
            "Return the words of a text, the last one first.",
            "class Solution:\n    def turned(self, text):\n        return text.split()[::-1]\n",
            {"fn_name": "turned", "inputs": [["a b"], ["one"]], "outputs": [["b", "a"], ["one"]]},
        ),
    ],
}

REWARDS = {"human_eval": human_eval, "mbpp": mbpp, "live_code_bench": live_code_bench, "apps": apps}


def scores(name: str, completions: list[str]) -> list[float | None]:
    """The scores of completions, one a row."""
    rows = ROWS[name]
    columns = {column: [row[column] for row in rows] for column in rows[0] if column not in ("prompt", "solution")}
    return REWARDS[name](completions=completions, **columns)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, help="write the rows there")
    folder = parser.parse_args().data
    for name, rows in ROWS.items():
        if folder is not None:
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
            continue
        wrong = [str(row["solution"]).replace("return ", "return not ").replace("print(", "print(1, ") for row in rows]
        for what, completions in (("right", [str(row["solution"]) for row in rows]), ("wrong", wrong)):
            print(f"{name:16} {what}  {scores(name, completions)}")
        REWARDS[name].close()


if __name__ == "__main__":
    main()
