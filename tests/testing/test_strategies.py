"""The strategies make values of the form that trainers give, within bounds."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from hypothesis import find, given, settings
from hypothesis import strategies as st

from guerdon.testing import completions, conversations, groups, rows

FEW = settings(max_examples=40)


@FEW
@given(completions())
def test_completions_are_short_texts(text: str) -> None:
    assert isinstance(text, str)
    assert len(text) < 1000


def test_completions_give_the_answers_asked_for_in_forms_whole_and_cut() -> None:
    assert find(completions(st.just("Bergen")), lambda text: text.endswith("<answer>Bergen</answer>"))
    assert find(completions(st.just("Bergen")), lambda text: "\\boxed{Be" in text and "Bergen}" not in text)


@FEW
@given(conversations(turns=2))
def test_conversations_end_with_the_assistant(messages: list[dict[str, str]]) -> None:
    assert messages[-1]["role"] == "assistant"
    assert len(messages) <= 3
    assert all(message.keys() == {"role", "content"} for message in messages)


@FEW
@given(rows({"label": st.integers(0, 3)}, conversational=True))
def test_rows_have_the_columns_asked_for(row: dict[str, Any]) -> None:
    assert row.keys() == {"prompt", "completion", "label"}
    assert row["prompt"][0]["role"] == "user"
    assert row["completion"][-1]["role"] == "assistant"


@FEW
@given(groups(size=3))
def test_groups_share_all_but_the_completion(group: list[dict[str, Any]]) -> None:
    assert len(group) == 3
    assert all((row["prompt"], row["answer"]) == (group[0]["prompt"], group[0]["answer"]) for row in group)


def test_without_hypothesis_the_message_says_what_to_install() -> None:
    program = (
        "import sys\nsys.modules['hypothesis'] = None\nsys.modules['hypothesis.strategies'] = None\n"
        "import guerdon.testing\nassert guerdon.testing.assert_rejects\n"
        "try:\n    guerdon.testing.completions()\n"
        "except ImportError as error:\n    assert \"pip install 'hypothesis>=6.100' 'pytest>=8'\" in str(error)\n"
        "else:\n    raise SystemExit('no error')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
