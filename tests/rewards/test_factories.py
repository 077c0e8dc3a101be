"""Options and values that the factories of `guerdon.rewards` take and refuse, and plain calls."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, reward, rewards
from guerdon._insight.journal.versions import source_version
from guerdon.errors import DataError, RegistrationError
from guerdon.rewards import schemas


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: rewards.exact_match(""), "name of a column"),
        (lambda: rewards.exact_match(tag="<a>"), "name of a tag"),
        (lambda: rewards.exact_match(nme="x"), "no option 'nme'"),
        (lambda: rewards.exact_match(timeout=0), "timeout=0"),
        (lambda: rewards.rouge_l(measure="f"), "rouge_l.*unknown variant"),
        (lambda: rewards.bleu(smooth="more"), "unknown variant"),
        (lambda: rewards.multiple_choice(choices="BC"), "from A on"),
        (lambda: rewards.tag_count([]), "one at least"),
        (lambda: rewards.tag_count("ab"), "expected texts"),
        (lambda: rewards.tag_count(None), "tags=None: expected texts"),
        (lambda: rewards.tag_count(["\ud800"]), "half a surrogate pair"),
        (lambda: rewards.exact_match(tag="\ud800"), "half a surrogate pair"),
        (lambda: rewards.exact_match("\ud800"), "name of a column"),
        (lambda: rewards.normalized_match(ignore_case="no"), "ignore_case='no': expected True or False"),
        (lambda: rewards.ifeval(loose="no"), "loose='no': expected True or False"),
        (lambda: rewards.bleu(lowercase=0), "lowercase=0: expected True or False"),
        (lambda: rewards.json_schema(formats=None), "formats=None: expected True or False"),
        (lambda: rewards.math_reward(strict="no"), "strict='no': expected True or False"),
        (lambda: rewards.cosine_length(clamp="no"), "clamp='no': expected True or False"),
        (lambda: rewards.cosine_length(max_value_correct=1e39), "that float32 can hold"),
        (lambda: rewards.repetition_penalty(max_penalty=-1e39), "that float32 can hold"),
        (lambda: rewards.repetition_penalty(0), "ngram_size=0"),
        (lambda: rewards.repetition_penalty(max_penalty=0.5), "0 or less"),
        (lambda: rewards.repetition_penalty(of="letters"), "'ids' or 'words'"),
        (lambda: rewards.soft_overlong(-1, 0), "max_completion_len=-1"),
        (lambda: rewards.cosine_length(max_len=0), "max_len=0"),
        (lambda: rewards.cosine_length(lambda text: 1.0), "a reward function of guerdon.rewards"),
        (lambda: rewards.cosine_length(rewards.soft_overlong(2, 1)), "not its token ids"),
        (lambda: rewards.ifeval(score="most"), "unknown variant"),
        (lambda: rewards.json_schema(schema={"type": "text"}), "the schema is wrong"),
        (lambda: rewards.json_schema(schema="{"), "the schema is not JSON"),
        (lambda: rewards.json_schema(schema={"const": {1, 2}}), "the schema is not JSON"),
        (lambda: rewards.json_schema(schema={"$ref": "https://example.com/a.json"}), "the schema is wrong"),
        (lambda: reward(lambda text: 1.0, lane="native"), "guerdon.rewards has those"),
    ],
)
def test_odd_options_are_refused(make: Any, match: str) -> None:
    with pytest.raises(RegistrationError, match=match):
        make()


def test_references_may_be_texts_numbers_lists_or_none() -> None:
    exact = rewards.exact_match("gold")
    gold = ["4", 4, 4.0, np.int64(4), ["5", 4], np.array(["5", "4"]), None, True]
    assert exact(completions=["4"] * 8, gold=gold) == [1.0, 1.0, 0.0, 1.0, 1.0, 1.0, None, 0.0]
    assert exact(completions=["4", "5"], gold=4) == [1.0, 0.0]
    for wrong in ({}, [{}], object(), b"4", [["4"]]):
        with pytest.raises(DataError, match=r"'exact_match': sample 1: column 'gold': expected a text, a number or a"):
            exact(completions=["4", "4"], gold=["4", wrong])
    with pytest.raises(DataError, match=r"sample 1: column 'gold': the list of references is empty"):
        exact(completions=["4", "4"], gold=["4", []])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([np.int64(4)], "4"),
        (np.float32(0.1), "0.1"),
        ([np.float32(0.1)], "0.1"),
        (np.array([0.1], dtype=np.float32), "0.1"),
        (np.array(0.5), "0.5"),
        (Decimal("4.50"), "4.50"),
        (Fraction(1, 2), "1/2"),
        (np.bool_(True), "True"),
        (np.str_("字"), "字"),
        ((None, "4", math.nan), "4"),
    ],
)
def test_numbers_are_the_texts_that_python_writes(value: object, text: str) -> None:
    assert rewards.exact_match()(completions=[text, f"{text}0"], answer=[value, value]) == [1.0, 0.0]


@pytest.mark.parametrize(
    "value", [math.nan, np.float32("nan"), np.float64("nan"), Decimal("nan"), np.array(math.nan), [math.nan], [None]]
)
def test_other_values_than_numbers_are_not_references(value: object) -> None:
    assert rewards.exact_match()(completions=["nan"], answer=[value]) == [None]
    if not isinstance(value, (list, np.ndarray)):
        assert rewards.json_schema()(completions=["1"], schema=[value]) == [None]


def test_columns_of_a_trainers_own_are_compared_too() -> None:
    given = {"prompts": ["a", "b"], "completions": ["a", "c"]}
    assert rewards.exact_match("prompt")(**given) == [1.0, 0.0]
    assert rewards.edit_distance("text")(**given) == [1.0, 1.0]
    with Dispatcher([rewards.exact_match("prompt"), rewards.edit_distance("completion")]) as dispatcher:
        assert dispatcher.score(**given).rewards.reshape(2, 2).tolist() == [[1.0, 1.0], [0.0, 1.0]]
    with pytest.raises(DataError, match=r"'prompt', which this batch doesn't have. Give prompts= too"):
        rewards.exact_match("prompt")(completions=["a"])
    with pytest.raises(DataError, match=r"'prompt', a reserved name.*ambiguous"):
        rewards.exact_match("prompt")(**given, prompt=["a", "b"])


def test_conversations_are_scored_by_their_last_answer() -> None:
    turns = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    assert rewards.exact_match()([turns[:1]], [turns[1:]], answer=["4"]) == [1.0]
    assert rewards.exact_match()(None, [[*turns[1:], *turns]], answer=["4"]) == [1.0]
    # A lone message needs no role, as for TRL's own rewards; one with a role has to be an answer.
    assert rewards.exact_match()(None, [[{"content": "4"}]], answer=["4"]) == [1.0]
    assert rewards.exact_match()(None, [turns[:1], [{}]], answer=["2 + 2?", ""]) == [0.0, 1.0]


def test_columns_that_are_missing_are_named() -> None:
    with pytest.raises(DataError, match=r"asks for the column 'answer'.*Its columns: gold"):
        rewards.exact_match()(completions=["4"], gold=["4"])
    with pytest.raises(DataError, match="give completion_ids= too"):
        rewards.soft_overlong(2, 1)(completions=["4"])


def test_half_a_surrogate_pair_is_a_character_of_its_own() -> None:
    texts = ["\ud800", "\udfff", "a\ud83d\ude00", "字\ud83d"]
    answers = ["\ud800", "\ud800", "a😀", ["x", "字\ud83d"]]
    assert rewards.exact_match()(completions=texts, answer=answers) == [1.0, 0.0, 0.0, 1.0]
    assert rewards.edit_distance()(completions=texts, answer=["\ud800"] * 4) == [1.0, 0.0, 0.0, 0.0]


def test_schemas_come_by_column_or_once_for_all() -> None:
    whole = {"type": "integer"}
    texts = ["1", "1.5", "x", "2", "<json>3</json>"]
    assert rewards.json_schema(schema=whole)(completions=texts) == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert rewards.json_schema(schema=whole, tag="json")(completions=texts) == [0.0, 0.0, 0.0, 0.0, 1.0]
    column = [whole, '{"type": "number"}', True, None, {"type": "string"}]
    assert rewards.json_schema("form")(completions=texts, form=column) == [1.0, 1.0, 0.0, None, 0.0]
    with pytest.raises(DataError, match=r"'json_schema': sample 1: column 'schema': the schema is wrong"):
        rewards.json_schema()(completions=["1", "2"], schema=[whole, {"type": "text"}])
    day = {"type": "string", "format": "date"}
    assert rewards.json_schema(schema=day)(completions=['"today"']) == [1.0]
    assert rewards.json_schema(schema=day, formats=True)(completions=['"today"', '"2026-02-28"']) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"required": ["a"], "properties": {"a": {"type": "integer"}}}, ' {"a": 1.0} ', 1.0),
        ({"properties": {"a": {"type": "integer"}}}, '{"a": "1", "a": 1}', 1.0),
        (True, '{"a": 1', 0.0),
        (True, "NaN", 0.0),
        (True, "[-Infinity]", 0.0),
        (True, "1e999", 0.0),
        (True, "1e99", 1.0),
        (True, str(10**400), 1.0),
        (True, '"\\ud800"', 0.0),
        (True, '"\ud800"', 0.0),
        (True, '"\\ud83d\\ude00"', 1.0),
        (True, "", 0.0),
        (False, "1", 0.0),
        ({"$ref": "#"}, "1", 1.0),
        ({"anyOf": [{"type": "integer"}, {"items": {"$ref": "#"}, "type": "array"}]}, "[" * 100 + "1" + "]" * 100, 1.0),
        ({"items": {"$ref": "#"}}, "[" * 100_000, 0.0),
        ({"items": {"$ref": "#"}}, "[" * 400 + "]" * 400, 1.0),
        ({"uniqueItems": True}, "[0, 1, 0.0]", 0.0),
        ({"uniqueItems": True}, '[[1], 2, [1, [2]], "1", {}, null, false]', 1.0),
        ({"pattern": "^a$"}, '"a\\n"', 0.0),
    ],
)
def test_json_is_that_of_its_standard(schema: object, text: str, expected: float) -> None:
    assert rewards.json_schema()(completions=[text], schema=[schema]) == [expected]


def test_without_jsonschema_rs_the_reward_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "find_spec", lambda name: None)
    with pytest.raises(RegistrationError, match=r"needs jsonschema-rs: pip install 'jsonschema-rs>=0\.60'"):
        rewards.json_schema()


def test_invalid_batches_are_refused() -> None:
    exact, ids = rewards.exact_match(), rewards.repetition_penalty()
    with pytest.raises(DataError, match="the batch has no samples"):
        exact(completions=[], answer=[])
    with pytest.raises(DataError, match="completion of sample 1 is a NoneType"):
        exact(completions=["4", None], answer=["4", "4"])
    with pytest.raises(DataError, match="'answer' has 1 value, but there are 2 completions"):
        exact(completions=["4", "5"], answer=["4"])
    for wrong in (["x"], [-1], [2**32], None):
        with pytest.raises(DataError, match=r"'repetition_penalty': sample 1: column 'completion_ids': "):
            ids(completions=["", ""], completion_ids=[[1], wrong])
    for odd in ("12", b"12", {1: 2}, 12, None):
        with pytest.raises(DataError, match=r"sample 0: column 'completion_ids': expected a list of token ids, not a "):
            rewards.soft_overlong(2, 1)(completions=[""], completion_ids=[odd])


def test_a_trainers_keywords_are_taken() -> None:
    exact = rewards.exact_match(name="right")
    trl = {"trainer_state": object(), "log_extra": print, "log_metric": print, "completion_ids": [[1]]}
    assert exact(prompts=["2 + 2?"], completions=["4"], answer=["4"], **trl) == [1.0]
    assert (exact.name, exact.__name__) == ("right", "right")
    assert repr(exact) == "<reward function 'right': native lane, timeout 30 s>"


@pytest.mark.parametrize(
    "name", sorted(set(rewards.__all__) - {"KernelOptions", "MathReward", "NativeReward", "SchemaReward", "math_equal"})
)
def test_they_pickle_as_what_they_were_made_from(name: str) -> None:
    own: dict[str, Any] = {"soft_overlong": {"max_completion_len": 9, "soft_punish_cache": 3}}.get(name, {})
    made = getattr(rewards, name)(name="mine", timeout=2.5, **own)
    again = pickle.loads(pickle.dumps(made))
    assert (again.name, again.spec.policy.timeout, again.spec.kernel) == ("mine", 2.5, made.spec.kernel)
    with Dispatcher([again]) as dispatcher:
        assert list(dispatcher.names) == ["mine"]


def test_other_options_are_another_version() -> None:
    """A journal has the version of the function that scored."""
    made = [rewards.squad_em(), rewards.squad_em("gold"), rewards.squad_em(tag="answer"), rewards.squad_em(timeout=1)]
    versions = [source_version(one.spec) for one in made]
    assert len({*versions}) == 3
    assert versions[0] == versions[3]


@pytest.mark.parametrize(
    ("make", "column"),
    [
        (rewards.exact_match, "answer"),
        (rewards.math_reward, "solution"),
        (rewards.bleu, "answer"),
        (rewards.ifeval, "kwargs"),
    ],
)
def test_one_text_is_no_column(make: Any, column: str) -> None:
    """It would be compared with every completion; a dispatcher refuses it too."""
    given = {"completions": ["55", "5"], "instruction_id_list": [[], []], column: "55"}
    for score in (make(), Dispatcher([make()]).score):
        with pytest.raises(
            DataError, match=rf"column '{column}' is a str, not a list.*: give a list with one value per sample"
        ):
            score(**given)
