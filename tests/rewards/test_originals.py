"""Native rewards give what their originals give, on random texts; where a package is not there its
results are recorded, see test_recorded.py."""

from __future__ import annotations

import json
import re
import string
import sys
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import rewards
from tests.rewards import originals
from tests.rewards.texts import pairs, texts

usual = settings(max_examples=200, deadline=None)


def one(reward: rewards.NativeReward | rewards.SchemaReward, text: str, **columns: object) -> float | None:
    """The score of one sample."""
    [score] = reward(completions=[text], **{name: [value] for name, value in columns.items()})
    return score


@usual
@given(pairs(), st.sampled_from(["fmeasure", "precision", "recall"]))
def test_rouge_l_is_that_of_rouge_score(pair: tuple[str, list[str]], measure: str) -> None:
    text, references = pair
    found = one(rewards.rouge_l(measure=measure), text, answer=references)  # type: ignore[arg-type]
    assert found == originals.rouge_l(text, references, measure)


@usual
@given(pairs(), st.sampled_from(["exp", "floor", "add-k", "none"]), st.booleans())
def test_bleu_is_that_of_sacrebleu(pair: tuple[str, list[str]], smooth: str, lowercase: bool) -> None:
    text, references = pair
    found = one(rewards.bleu(smooth=smooth, lowercase=lowercase), text, answer=references)  # type: ignore[arg-type]
    expected = originals.bleu(text, references, smooth_method=smooth, lowercase=lowercase)
    assert found == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("make", "original"),
    [
        (rewards.edit_distance, originals.edit_distance),
        (rewards.squad_em, originals.em_check),
        (rewards.squad_f1, originals.squad_f1),
        (rewards.normalized_match, originals.normalized_match),
    ],
    ids=["edit_distance", "squad_em", "squad_f1", "normalized_match"],
)
@usual
@given(pairs())
def test_scores_are_those_of_the_original(
    make: Callable[[], rewards.NativeReward],
    original: Callable[[str, list[str]], float],
    pair: tuple[str, list[str]],
) -> None:
    text, references = pair
    assert one(make(), text, answer=references) == original(text, references)


def test_words_are_those_of_python() -> None:
    """Every character that Python knows: an article beside it is one only if that is no word."""
    known = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    pattern = re.compile(r"\b(a|an|the)\b")
    # what str.lower and string.punctuation do beside is tested by the texts above
    plain = [one for one in known if one not in string.punctuation and one == one.lower()]
    answers = [" ".join(pattern.sub(" ", f"x a{one} x").split()) for one in plain]
    scores = rewards.squad_em()(completions=[f"x a{one} x" for one in plain], answer=answers)
    assert [one for one, score in zip(plain, scores, strict=True) if score != 1.0] == []


@usual
@given(texts, st.booleans(), st.booleans(), st.booleans())
def test_a_normalized_text_matches_itself(text: str, case: bool, punctuation: bool, numbers: bool) -> None:
    normal = text.lower() if case else text
    left_out = (string.punctuation if punctuation else "") + (string.digits if numbers else "")
    normal = normal.translate(str.maketrans("", "", left_out))
    flags = {"ignore_case": case, "ignore_punctuation": punctuation, "ignore_numbers": numbers}
    reward = rewards.normalized_match(ignore_space=False, **flags)
    # what is normal already stays as it is
    again = (normal.lower() if case else normal).translate(str.maketrans("", "", left_out))
    assert one(reward, text, answer=normal) == float(again == normal)
    assert one(rewards.normalized_match(**flags), text, answer=" ".join(normal.split())) == float(again == normal)


_ids = st.lists(st.integers(0, 6) | st.integers(0, 2**32 - 1), max_size=60)


@usual
@given(st.lists(_ids, min_size=1, max_size=5), st.integers(1, 4), st.floats(-3, 0))
def test_repetition_penalty_is_that_of_trl(ids: list[list[int]], size: int, penalty: float) -> None:
    expected = originals.trl_reward("get_repetition_penalty_reward", size, penalty)(ids)
    found = rewards.repetition_penalty(size, penalty)(completions=[""] * len(ids), completion_ids=ids)
    assert found == expected


@usual
@given(st.lists(_ids, min_size=1, max_size=5), st.integers(0, 40), st.integers(0, 40))
def test_soft_overlong_is_that_of_trl(ids: list[list[int]], most: int, cache: int) -> None:
    expected = originals.trl_reward("get_soft_overlong_punishment", most, cache)(completion_ids=ids)
    assert rewards.soft_overlong(most, cache)(completions=[""] * len(ids), completion_ids=ids) == expected


@usual
@given(st.lists(st.sampled_from(["<think>", "</think>", "\n", "x", "<think", " "]), max_size=9).map("".join))
def test_think_format_is_that_of_trl(text: str) -> None:
    expected = originals.trl_reward("think_format_reward")([[{"role": "assistant", "content": text}]])
    assert rewards.think_format()(completions=[[{"role": "assistant", "content": text}]]) == expected


@usual
@given(st.lists(st.sampled_from(["So", " ", "\t", ".", "2", "\n", ","]), max_size=12), st.sampled_from("ABCD"))
def test_multiple_choice_reads_what_the_pattern_does_behind_the_one_answer(pieces: list[str], letter: str) -> None:
    text = f"{''.join(pieces)} Answer: ${letter}$"
    assert one(rewards.multiple_choice(), text, answer="B") == originals.multiple_choice(text, "B")


@usual
@given(st.lists(st.sampled_from(["<a>", "<a", ">", "aa", "a", "\n", "x"]), max_size=8).map("".join))
def test_tags_are_counted_as_str_counts(text: str) -> None:
    tags = ["<a>", "aa", "\n", "x"]
    assert one(rewards.tag_count(tags), text) == originals.tag_count(text, tags)


@usual
@given(texts, st.booleans(), st.integers(1, 100))
def test_cosine_length_is_its_formula(text: str, right: bool, most: int) -> None:
    answer = text if right else text + "x"
    expected = originals.cosine_length(text, answer, most)
    assert one(rewards.cosine_length(max_len=most, clamp=False), text, answer=answer) == expected
    if len(text) <= most:
        assert one(rewards.cosine_length(max_len=most), text, answer=answer) == expected


@usual
@given(st.lists(st.tuples(st.integers(0, 90), st.booleans()), min_size=1, max_size=5), st.integers(1, 60))
def test_a_clamped_cosine_length_is_that_of_trl(answers: list[tuple[int, bool]], most: int) -> None:
    """The completions have as many token ids as characters."""
    texts = [r"\boxed{1}" + "x" * length for length, _ in answers]
    gold = ["1" if right else "2" for _, right in answers]
    messages = [[{"role": "assistant", "content": text}] for text in texts]
    trl = originals.trl_reward("get_cosine_scaled_reward", most)
    expected = trl(completions=messages, solution=gold, completion_ids=[[0] * len(text) for text in texts])
    right = rewards.cosine_length(rewards.exact_match("fits"), max_len=most)
    fits = [text if is_right else "" for text, (_, is_right) in zip(texts, answers, strict=True)]
    assert right(completions=messages, fits=fits) == expected


SCHEMAS: list[dict[str, object]] = [
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
    {"type": "array", "items": {"type": ["number", "null"]}, "uniqueItems": True, "maxItems": 3},
    {"anyOf": [{"type": "string", "minLength": 2}, {"items": {"$ref": "#"}, "type": "array"}, {"const": 1}]},
    {"not": {"type": "object", "minProperties": 2}, "maximum": 3, "multipleOf": 0.5},
    {"propertyNames": {"pattern": "^[a-c]*$"}, "if": {"required": ["a"]}, "then": {"required": ["b"]}},
]
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-9, 9) | st.sampled_from(["", "a", "ab", "字", "1"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd\n"), inner, max_size=3),
    max_leaves=8,
)


@usual
@given(_values.map(json.dumps), st.sampled_from(SCHEMAS), st.sampled_from(["", " ", "\n", "}", "\x1f"]))
def test_json_schema_is_that_of_jsonschema_rs(text: str, schema: dict[str, object], end: str) -> None:
    expected = originals.json_schema(text + end, schema)
    assert one(rewards.json_schema(), text + end, schema=schema) == expected
    assert rewards.json_schema(schema=schema)(completions=[text + end]) == [expected]


@usual
@given(_values.map(json.dumps), st.sampled_from(SCHEMAS[:-1]))
def test_json_schema_is_that_of_jsonschema(text: str, schema: dict[str, object]) -> None:
    """The schemas have no pattern."""
    assert one(rewards.json_schema(), text, schema=schema) == originals.json_schema_of_jsonschema(text, schema)


@usual
@given(texts, texts)
def test_columns_of_json_hold_the_same_texts(text: str, other: str) -> None:
    """A list of one reference says what the reference says, by way of JSON."""
    for answer in (text, other):
        expected = float(text == answer)
        assert one(rewards.exact_match(), text, answer=[answer]) == expected
        assert one(rewards.exact_match(), text, answer=answer) == expected
        assert rewards.exact_match()(completions=[text, text], answer=[answer, None]) == [expected, None]
