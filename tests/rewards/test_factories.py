"""What the factories of `guerdon.rewards` take and refuse, and what a plain call gives."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from guerdon import Dispatcher, reward, rewards
from guerdon._journal.versions import source_version
from guerdon.errors import DataError, RegistrationError


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
        (lambda: rewards.repetition_penalty(0), "ngram_size=0"),
        (lambda: rewards.repetition_penalty(max_penalty=0.5), "0 or less"),
        (lambda: rewards.repetition_penalty(of="letters"), "'ids' or 'words'"),
        (lambda: rewards.soft_overlong(-1, 0), "max_completion_len=-1"),
        (lambda: rewards.cosine_length(max_len=0), "max_len=0"),
        (lambda: rewards.cosine_length(lambda text: 1.0), "a reward function of guerdon.rewards"),
        (lambda: rewards.cosine_length(rewards.soft_overlong(2, 1)), "not its token ids"),
        (lambda: rewards.ifeval(score="most"), "unknown variant"),
        (lambda: rewards.json_schema(schema={"type": "text"}), "the schema is wrong"),
        (lambda: rewards.json_schema(schema="{"), "the schema is no JSON"),
        (lambda: rewards.json_schema(schema={"const": {1, 2}}), "the schema is no JSON"),
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
    assert exact(completions=["4", "5"], gold="4") == [1.0, 0.0]
    for wrong in ({}, [{}], object()):
        with pytest.raises(DataError, match=r"column 'gold' of sample 1 is nothing that 'exact_match' can take"):
            exact(completions=["4", "4"], gold=["4", wrong])
    with pytest.raises(DataError, match=r"sample 1: the list of references is empty"):
        exact(completions=["4", "4"], gold=["4", []])


def test_conversations_are_scored_by_their_last_answer() -> None:
    turns = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    assert rewards.exact_match()([turns[:1]], [turns[1:]], answer=["4"]) == [1.0]
    assert rewards.exact_match()(None, [[*turns[1:], *turns]], answer=["4"]) == [1.0]


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
    with pytest.raises(DataError, match=r"'json_schema': sample 1: the schema is wrong"):
        rewards.json_schema()(completions=["1", "2"], schema=[whole, {"type": "text"}])
    day = {"type": "string", "format": "date"}
    assert rewards.json_schema(schema=day)(completions=['"today"']) == [1.0]
    assert rewards.json_schema(schema=day, formats=True)(completions=['"today"', '"2026-02-28"']) == [0.0, 1.0]


def test_what_is_no_batch_is_refused() -> None:
    exact, ids = rewards.exact_match(), rewards.repetition_penalty()
    with pytest.raises(DataError, match="the batch has no samples"):
        exact(completions=[], answer=[])
    with pytest.raises(DataError, match="completion of sample 1 is a NoneType"):
        exact(completions=["4", None], answer=["4", "4"])
    with pytest.raises(DataError, match="'answer' has 1 value, but there are 2 completions"):
        exact(completions=["4", "5"], answer=["4"])
    for wrong in (["x"], [-1], [2**32], None):
        with pytest.raises(DataError, match=r"'completion_ids' of sample 1 is nothing that 'repetition_penalty'"):
            ids(completions=["", ""], completion_ids=[[1], wrong])


def test_a_trainers_keywords_are_taken() -> None:
    exact = rewards.exact_match(name="right")
    trl = {"trainer_state": object(), "log_extra": print, "log_metric": print, "completion_ids": [[1]]}
    assert exact(prompts=["2 + 2?"], completions=["4"], answer=["4"], **trl) == [1.0]
    assert (exact.name, exact.__name__) == ("right", "right")
    assert repr(exact) == "<reward function 'right': native lane, timeout 30 s>"


@pytest.mark.parametrize(
    "name", sorted(set(rewards.__all__) - {"KernelOptions", "MathReward", "NativeReward", "math_equal"})
)
def test_they_pickle_as_what_they_were_made_from(name: str) -> None:
    own: dict[str, Any] = {"soft_overlong": {"max_completion_len": 9, "soft_punish_cache": 3}}.get(name, {})
    made = getattr(rewards, name)(name="mine", timeout=2.5, **own)
    again = pickle.loads(pickle.dumps(made))
    assert (again.name, again.spec.policy.timeout, again.spec.kernel) == ("mine", 2.5, made.spec.kernel)
    with Dispatcher([again]) as dispatcher:
        assert list(dispatcher.names) == ["mine"]


def test_other_options_are_another_version() -> None:
    """What a journal says of the function that scored."""
    made = [rewards.squad_em(), rewards.squad_em("gold"), rewards.squad_em(tag="answer"), rewards.squad_em(timeout=1)]
    versions = [source_version(one.spec) for one in made]
    assert len({*versions}) == 3
    assert versions[0] == versions[3]
