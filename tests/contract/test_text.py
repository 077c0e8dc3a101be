"""Text of any kind crosses to the workers and back unharmed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from guerdon import Dispatcher, Status, group_reward, reward
from tests.contract import fingerprints as texts
from tests.contract.fingerprints import fingerprint
from tests.simple import shared_dispatcher

PAIR = "\ud83d" + "\ude00"  # two characters; UTF-16 would make one emoji of them

KINDS = {
    "empty": "",
    "a character": "a",
    "NUL": "\0",
    "NULs inside": "a\0b\0\0",
    "ASCII": "The answer is 42.\n\t\x7f",
    "Latin-1": "\x80 Zürich ÿ",
    "two bytes": "Ελλάδα и 漢字 \uffff",
    "emoji": "😀👩‍👩‍👧‍👦",
    "highest": "\U0010ffff",
    "high surrogate": "\ud800",
    "low surrogate": "a\udfffb",
    "surrogates as a pair": PAIR,
    "pair beside its emoji": PAIR + "😀",
    "surrogate and NUL": "\udc80\0",
    "all of it": "a\0ÿ漢😀\ud800" + PAIR,
    "byte order marks": "\ufeff\ufffe",
    "line separators": "a\r\nb\u2028c\x85",
    "1 MB": "ab" * (1 << 19),
    "1 MB Latin-1": "é" * (1 << 20),
    "1 MB of two bytes": "漢" * (1 << 20),
    "1 MB of four bytes": "😀" * (1 << 18) + "\udfff",
}
SHORT = [kind for kind, text in KINDS.items() if len(text) < 100]


dispatcher = shared_dispatcher(
    [
        reward(texts.of_prompt),
        reward(texts.of_completion),
        reward(texts.of_answer),
        reward(texts.of_all),
        group_reward(texts.of_group),
        texts.of_batch,
        reward(texts.of_completion, name="forked", isolation="call"),
    ],
    workers=2,
)


def check(dispatcher: Dispatcher, prompts: list[Any], completions: list[Any], answers: list[Any], size: int) -> None:
    result = dispatcher.score(prompts=prompts, completions=completions, answer=answers, num_generations=size)
    assert result.status.max() == Status.OK, result.failures()
    rewards = result.rewards.reshape(len(completions), -1)
    whole = texts.of_lists(prompts, completions, answers)
    for first in range(0, len(completions), size):
        group = slice(first, first + size)
        of_group = texts.of_lists(prompts[group], completions[group], answers[group])
        for sample in range(first, first + size):
            expected = [
                fingerprint(prompts[sample]),
                fingerprint(completions[sample]),
                fingerprint(answers[sample]),
                fingerprint([prompts[sample], completions[sample], answers[sample]]),
                fingerprint([of_group, sample - first]),
                fingerprint([whole, sample]),
                fingerprint(completions[sample]),
            ]
            assert rewards[sample].tolist() == expected, sample


def test_the_fingerprint_tells_texts_apart() -> None:
    assert len({fingerprint(text) for text in KINDS.values()}) == len(KINDS)
    assert fingerprint(PAIR) != fingerprint("😀")


@pytest.mark.parametrize("kind", KINDS)
def test_row_13_a_batch_of_one_kind(dispatcher: Dispatcher, kind: str) -> None:
    text = KINDS[kind]
    check(dispatcher, [text] * 2, [text, text + "."], ["", text], 2)


@pytest.mark.fault(
    "texts of any kind: empty, 1 MB, emoji, NUL, lone surrogates",
    sees="nothing: they arrive as they are",
)
def test_row_13_all_kinds_in_one_batch(dispatcher: Dispatcher) -> None:
    """No kind may take the layout of another one in its frame."""
    kinds = list(KINDS.values())
    check(dispatcher, kinds, kinds[::-1], kinds[3:] + kinds[:3], len(kinds))


def test_row_13_many_short_texts_in_full_frames(dispatcher: Dispatcher) -> None:
    chosen = [KINDS[kind] for kind in SHORT]
    completions = [chosen[index * 7 % len(chosen)] + str(index) for index in range(400)]
    check(dispatcher, ["p"] * 400, completions, completions[::-1], 4)


everything = st.text(st.characters(exclude_categories=()), max_size=20)  # surrogates too
values = st.recursive(
    st.one_of(everything, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(everything, inner, max_size=3)),
    max_leaves=6,
)


@settings(max_examples=settings().max_examples * 60 // 100)
@given(rows=st.lists(st.tuples(everything, everything, values), min_size=1, max_size=12))
@example(rows=[(PAIR, PAIR, {PAIR: [PAIR]}), ("", "😀", None)])
def test_row_13_any_text_in_any_column(dispatcher: Dispatcher, rows: list[Any]) -> None:
    check(dispatcher, *[list(column) for column in zip(*rows, strict=True)], len(rows))


@pytest.mark.fault(
    "exceptions with texts of any kind",
    sees="a reason that can be read, odd characters escaped",
)
def test_row_13_messages() -> None:
    """Conversational data: prompts and completions are lists of messages, `text` is the last
    one's."""
    kinds = list(KINDS.values())
    prompts = [[{"role": "user", "content": text}] for text in kinds]
    completions = [
        [{"role": "assistant", "content": [{"type": "text", "text": text}, {"type": "text", "text": "."}]}]
        for text in kinds
    ]
    functions = [reward(texts.of_prompt), reward(texts.of_completion), reward(texts.of_text)]
    with Dispatcher(functions, workers=2) as made:
        result = made.score(prompts=prompts, completions=completions)
    for sample, text in enumerate(kinds):
        expected = [fingerprint(prompts[sample]), fingerprint(completions[sample]), fingerprint(text + ".")]
        assert result.rewards[sample, 0].tolist() == expected


@pytest.mark.parametrize("lane", ["process", "thread"])
def test_row_13_text_on_the_way_back(lane: str) -> None:
    """Reasons and records escape what UTF-8 can't hold, and keep the rest."""
    functions = [
        reward(texts.raises, lane=lane, max_failure_rate=1.0),
        reward(texts.records, lane=lane),
    ]
    kinds = [*KINDS.values(), "\udfff" * 100_000]
    with Dispatcher(functions, workers=1) as made:
        result = made.score(completions=kinds)
    failures = result.failures()
    assert [failure.sample for failure in failures] == list(range(len(kinds)))
    for text, failure in zip(kinds, failures, strict=True):
        for reported in (failure.reason, str(failure), failure.traceback or ""):
            reported.encode()  # can be printed and logged
        safe = text.encode("utf-8", "backslashreplace").decode()
        assert failure.reason.startswith("ValueError")
        if len(safe) < 1000:
            assert safe in failure.reason
        assert len(failure.reason) < 4000
    assert result.status[:, 0, 1].tolist() == [Status.OK] * len(kinds)
    for column in ("seen", "records/field"):
        for text, seen in zip(kinds, result.extra[column], strict=True):
            seen = seen[0] if isinstance(seen, list) else seen
            assert seen == text, (column, text[:20])


class OwnList:
    """A column that hands out the very list that it changes later."""

    def __init__(self, values: list[str]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> str:
        return self.values[index]

    def to_pylist(self) -> list[str]:
        return self.values


@pytest.mark.parametrize("lane", ["process", "thread"])
def test_a_list_that_its_owner_clears_after_submit_is_scored_as_it_was(lane: str) -> None:
    """Frames are made of the strings long after `submit`, without the GIL: they must be there."""
    number = reward(last_number, lane=lane)
    with Dispatcher([number], workers=1) as made:
        column = OwnList(["x" * 1000 + f" {index}" for index in range(5000)])
        pending = made.submit(completions=column)
        column.values.clear()
        # take the room that is free
        others = ["y" * 1000 + f" {index}" for index in range(5000, 15000)]
        assert pending.result(timeout=60).rewards[:, 0, 0].tolist() == list(range(5000))
        assert len(others) == 10000


def last_number(completion: str) -> float:
    return float(completion.split()[-1])
