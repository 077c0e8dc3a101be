"""``guerdon init [FOLDER]``: files to start from, which score, profile and test as they are.

No file that is there is replaced: nothing is written then.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any, Final

from guerdon._system.extras import pip_install
from guerdon.profile.exit_codes import SUCCESS, UsageError

__all__ = ["add_to", "run"]

_REWARDS: Final = r'''"""Reward functions: a math check, a format check and a judge.

guerdon score rewards.py:correct,formatted data.jsonl     scores the ten completions
guerdon profile rewards.py:correct,formatted data.jsonl   tries to fool the functions
python -m pytest test_rewards.py                          runs their tests
"""

import os
import re
from fractions import Fraction

from guerdon import judge, parse, reward


def number(text: str) -> Fraction | str:
    try:
        return Fraction(text.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return text.strip()


# The parameters name columns: completion, prompt, and those of the dataset.
# One box behind the reasoning counts. For answers in LaTeX there is guerdon.rewards.math_reward.
@reward(timeout=1)
def correct(completion: str, answer: str) -> float:
    final = completion.rpartition("</think>")[2]
    boxes = re.findall(r"\\boxed\{([^{}]+)\}", final)
    return float(len(boxes) == 1 and "<think>" not in final and number(boxes[0]) == number(answer))


@reward(timeout=1)
def formatted(completion: str) -> float:
    return float(re.fullmatch(r"<think>.+</think>[^<]*\\boxed\{[^{}]+\}[^<]*", completion, re.DOTALL) is not None)


# Any server with OpenAI's API, such as `vllm serve`; api_key_env="NAME" takes a key from the environment.
helpful = judge(
    base_url=os.environ.get("JUDGE_URL", "http://127.0.0.1:8000/v1"),
    model=os.environ.get("JUDGE_MODEL", "Qwen/Qwen3-8B"),
    prompt="Question: {prompt}\nReply: {completion}\nHow clear is the reply? Grade from 0 to 10 in <score></score>.",
    parse=parse.tag("score", range=(0, 10)),
    timeout=60,
    name="helpful",
)
'''

_TEST: Final = r'''"""Tests of rewards.py. They need no network: a server in this process stands for the judge."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from guerdon import Dispatcher
from guerdon.testing import assert_reference_scores, assert_rejects


class FakeJudge(BaseHTTPRequestHandler):
    """Gives 10 to a reply that is boxed, and 2 to any other."""

    def do_POST(self):
        question = self.rfile.read(int(self.headers["Content-Length"])).decode()
        grade = f"<score>{10 if 'boxed' in question else 2}</score>"
        message = {"index": 0, "message": {"role": "assistant", "content": grade}, "finish_reason": "stop"}
        answer = json.dumps({"choices": [message]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), FakeJudge)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["JUDGE_URL"] = f"http://127.0.0.1:{server.server_port}/v1"

from rewards import correct, formatted, helpful  # noqa: E402 - after the judge's address

with open(os.path.join(os.path.dirname(__file__), "data.jsonl")) as file:
    ROWS = [json.loads(line) for line in file]


def score(function, completion, **columns):
    with Dispatcher([function]) as dispatcher:
        result = dispatcher.score(completions=[completion], **{name: [value] for name, value in columns.items()})
    return float(result.rewards[0, 0, 0])


def test_the_right_answer_scores_and_no_trick_does():
    assert_reference_scores(correct, ROWS)
    assert_rejects(correct, ROWS)


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        (r"<think>6 * 7</think>It is \boxed{42}.", 1.0),
        (r"It is \boxed{42}.", 0.0),
        (r"<think>6 * 7</think>It is 42.", 0.0),
        (r"<think></think>\boxed{42}", 0.0),
    ],
)
def test_formatted_wants_a_thought_and_a_box(completion, expected):
    assert score(formatted, completion) == expected


def test_the_grade_of_the_judge_is_the_reward():
    assert score(helpful, r"It is \boxed{42}.", prompts="What is 6 * 7?") == 10.0
    assert score(helpful, "It is 42.", prompts="What is 6 * 7?") == 2.0
'''

_QUESTIONS: Final = (
    ("What is 6 * 7?", "42", r"<think>Six sevens are 42.</think>It is \boxed{42}."),
    ("What is 15 + 27?", "42", r"<think>15 + 27 = 42</think>\boxed{42}"),
    ("What is half of 3?", "3/2", r"<think>3 / 2</think>Half of it is \boxed{1.5}."),
    ("A pen costs 3 dollars. How much are 12 pens?", "36", r"<think>3 * 12 = 36</think>\boxed{36}"),
    ("What is 2 to the power of 10?", "1024", r"<think>Doubling ten times.</think>\boxed{1,024}"),
    ("What is 100 - 58?", "42", r"<think>100 - 58 = 52</think>\boxed{52}"),
    ("How many minutes are 3 hours?", "180", r"3 * 60 is \boxed{180}."),
    ("What is 144 / 12?", "12", "<think>144 / 12 = 12</think>It is 12."),
    ("What is the sum of 1 to 10?", "55", r"<think>10 * 11 / 2</think>\boxed{54} or \boxed{55}"),
    ("What is 7 squared?", "49", "I would rather not say."),
)


def _rows() -> str:
    keys = ("prompt", "answer", "completion")
    return "".join(f"{json.dumps(dict(zip(keys, row, strict=True)))}\n" for row in _QUESTIONS)


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "init",
        help="write a rewards file, data and a test to start from",
        description="Write rewards.py (a math check, a format check, a judge), data.jsonl (ten rows) and test_rewards.py.",
        epilog="Exit code: 0 success; 2 a file is there already, or can't be written.",
    )
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="made if it isn't there; default: .")
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Write the files and print what to do next.

    Raises:
        UsageError: One of them is there, or can't be written.
    """
    folder = Path(options.folder)
    files = {"rewards.py": _REWARDS, "data.jsonl": _rows(), "test_rewards.py": _TEST}
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise UsageError(f"{folder / there[0]} is there already. Name another folder: guerdon init FOLDER.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise UsageError(f"{options.folder!r} can't be written: {error.strerror}.") from None
    print(f"wrote {', '.join(str(folder / name) for name in files)}. Next:")
    if folder != Path():
        print(f"  cd {folder}")
    if importlib.util.find_spec("rich") is None:
        print(f"  {pip_install('cli')}  # for the table of guerdon profile")
    for line in _REWARDS.splitlines()[2:5]:
        print(f"  {line}")
    return SUCCESS
