"""Signatures of the three contracts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon._functions.signature import (
    BATCH_NAMES,
    GROUP_NAMES,
    RECORDERS,
    SAMPLE_NAMES,
    Wants,
    inspect_finish,
    inspect_wants,
    names_environments,
)
from guerdon.errors import RegistrationError

# Every shape of parameter list that a per-sample function may have, over these columns and reserved
# names.
COLUMNS = ("answer", "difficulty", "source")
NAMES = (*COLUMNS, "prompt", "completion", "text", "trainer_state", "log_metric")


def sample(function: Callable[..., Any]) -> Wants:
    return inspect_wants(function, "f", "sample")


def test_parameters_name_what_travels() -> None:
    wants = sample(lambda prompt, completion, answer, bonus=0.0: 1.0)
    assert wants.required == ("prompt", "completion", "answer")
    assert wants.optional == ("bonus",)
    assert wants.positional
    assert wants.arrange(["prompt", "completion", "answer"]) == (("prompt", "completion", "answer"), True)
    assert wants.arrange(["answer", "bonus", "source", "completion", "prompt"]) == (
        ("prompt", "completion", "answer", "bonus"),
        True,
    )
    assert wants.missing({"prompt", "completion"}) == ("answer",)


def test_a_row_takes_the_columns_that_are_not_named() -> None:
    """Dataset columns, never a reserved value that was not asked for."""
    wants = sample(lambda completion, answer=None, **row: 1.0)
    assert wants.row
    assert wants.arrange(["prompt", "completion", "text", "answer", "source", "level"]) == (
        ("completion", "answer", "source", "level"),
        False,
    )


def test_recorders_go_by_keyword() -> None:
    """A recorder in front of a value would be taken for it."""
    behind = sample(lambda completion, log_extra, log_metric=None: 1.0)
    assert behind.records == RECORDERS
    assert behind.required == ("completion",)
    assert behind.positional
    assert not sample(lambda log_extra, completion: 1.0).positional
    assert not sample(lambda completion, log_extra, answer: 1.0).positional


def test_positional_only_parameters() -> None:
    def plain(completion: str, answer: str, /, bonus: float = 0.0) -> float:
        return 1.0

    def gap(completion: str, /, first: int = 1, second: int = 2) -> float:
        return 1.0

    def row(completion: str, /, **row: object) -> float:
        return 1.0

    def keyword(completion: str, /, *, answer: str) -> float:
        return 1.0

    assert sample(plain).arrange(["completion", "answer"]) == (("completion", "answer"), True)
    for refused in (gap, row, keyword):
        with pytest.raises(RegistrationError, match=r"completion can only be passed by position.*Remove the '/'"):
            sample(refused)


def test_arguments_fixed_by_a_partial_are_not_required() -> None:
    def score(completion: str, answer: str, bonus: float = 0.0, **row: object) -> float:
        return 1.0

    by_name = sample(functools.partial(score, answer="x"))
    assert by_name.named == ("completion", "bonus")
    assert by_name.arrange(["completion", "answer", "level"]) == (("completion", "level"), False)
    by_place = sample(functools.partial(functools.partial(score, "text"), "x"))
    assert by_place.named == ("bonus",)
    assert set(by_place.fixed) == {"completion", "answer"}
    assert by_place.arrange(["completion", "answer", "level"]) == (("level",), False)


def test_a_wrapper_is_what_it_says_or_what_it_wraps() -> None:
    def score(completion: str, answer: str) -> float:
        return 1.0

    @functools.wraps(score)
    def passes_on(*args: Any, **kwargs: Any) -> float:
        return score(*args, **kwargs)

    @functools.wraps(score)
    def adds(completion: str) -> float:
        return score(completion, "42")

    @functools.wraps(adds)
    def passes_on_too(*args: Any, **kwargs: Any) -> float:
        return adds(*args, **kwargs)

    assert sample(passes_on).required == ("completion", "answer")
    assert sample(adds).required == ("completion",)
    assert sample(passes_on_too).required == ("completion",)
    assert sample(functools.lru_cache(score)).required == ("completion", "answer")
    assert sample(functools.partial(passes_on, answer="x")).required == ("completion",)


def test_odd_wrappers_are_refused_or_taken_as_they_are() -> None:
    @functools.wraps(max)
    def batch(completions: list[str], **kwargs: Any) -> list[float]:
        return [1.0]

    def circle(*args: Any) -> float:
        return 1.0

    circle.__wrapped__ = circle  # type: ignore[attr-defined]
    wants = inspect_wants(batch, "f", "batch")
    assert wants.everything
    assert not names_environments(batch, wants, "batch")
    with pytest.raises(RegistrationError, match="wrapper loop"):
        sample(circle)


def test_methods_and_callable_objects() -> None:
    class Scorer:
        def __call__(self, completion: str) -> float:
            return 1.0

        def method(self, text: str) -> float:
            return 1.0

        @staticmethod
        def static(answer: str) -> float:
            return 1.0

    assert sample(Scorer()).required == ("completion",)
    assert sample(Scorer().method).required == ("text",)
    assert sample(Scorer.static).required == ("answer",)


@pytest.mark.parametrize("shape", ["sample", "group"])
def test_args_are_refused_where_columns_have_names(shape: Any) -> None:
    with pytest.raises(RegistrationError, match=r"takes \*rest, which names no column.*functools.wraps"):
        inspect_wants(lambda *rest, **row: 1.0, "f", shape)


@pytest.mark.parametrize("name", ["prompts", "completions", "environments"])
def test_lists_asked_for_per_sample_are_refused(name: str) -> None:
    function = eval(f"lambda {name}: 1.0")
    with pytest.raises(RegistrationError, match=rf"wants '{name}', but is called once per sample: use '{name[:-1]}'"):
        sample(function)
    assert sample(eval(f"lambda completion, {name}=None: 1.0")).optional == (name,)


@pytest.mark.parametrize("name", ["prompt", "completion"])
@pytest.mark.parametrize("shape", ["group", "batch"])
def test_single_values_asked_for_from_lists_are_refused(name: str, shape: Any) -> None:
    with pytest.raises(RegistrationError, match=rf"wants '{name}'.* use '{name}s', or decorate it with @reward"):
        inspect_wants(eval(f"lambda {name}, **rest: [1.0]"), "f", shape)


def test_a_group_function_names_lists() -> None:
    wants = inspect_wants(lambda completions, texts, answer, log_metric, **columns: [1.0], "f", "group")
    assert wants.required == ("completions", "texts", "answer")
    assert wants.records == ("log_metric",)
    assert not wants.everything
    available = (*GROUP_NAMES, "answer", "level")
    assert wants.arrange(available) == (("completions", "texts", "answer", "level"), False)


def test_a_trl_function_with_kwargs_gets_everything() -> None:
    wants = inspect_wants(lambda completions, answer, **kwargs: [1.0], "f", "batch")
    assert wants.everything
    assert wants.records == RECORDERS
    names, by_position = wants.arrange((*BATCH_NAMES, "answer", "level", *RECORDERS))
    assert sorted(names) == sorted((*BATCH_NAMES, "answer", "level"))
    assert not by_position


def test_a_trl_function_without_kwargs_gets_what_it_names() -> None:
    wants = inspect_wants(lambda completions, answer, log_extra=None: [1.0], "f", "batch")
    assert not wants.everything
    assert wants.records == ("log_extra",)
    assert wants.arrange((*BATCH_NAMES, "answer", "level")) == (("completions", "answer"), False)


def test_a_trl_wrapper_with_kwargs_gets_everything_as_from_trl() -> None:
    def score(completions: list[str]) -> list[float]:
        return [1.0]

    @functools.wraps(score)
    def wrapper(*args: Any, **kwargs: Any) -> list[float]:
        return score(*args, completions=kwargs["completions"])

    assert inspect_wants(wrapper, "f", "batch").everything


def test_a_trl_function_without_arguments_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"takes no arguments.*decorate it with @reward"):
        inspect_wants(lambda: [1.0], "f", "batch")
    assert sample(lambda: 1.0).named == ()


def test_live_environments_are_seen_through_wrappers() -> None:
    def score(environments: list[object], **kwargs: object) -> list[float]:
        return [1.0]

    @functools.wraps(score)
    def wrapper(**kwargs: Any) -> list[float]:
        return score(**kwargs)

    for function in (score, wrapper):
        assert names_environments(function, inspect_wants(function, "f", "batch"), "batch")
    fixed = functools.partial(score, environments=[])
    assert not names_environments(fixed, inspect_wants(fixed, "f", "batch"), "batch")
    one = lambda environment: 1.0  # noqa: E731
    assert names_environments(one, sample(one), "sample")


def test_finish_group_gets_the_scores_first() -> None:
    class Judge:
        def finish_group(self, scores: list[float | None], completions: list[str], **columns: object) -> list[float]:
            return [1.0]

        def no_scores(self) -> list[float]:
            return [1.0]

        def by_name(self, *, scores: list[float]) -> list[float]:
            return scores

        def records(self, scores: list[float], log_metric: object) -> list[float]:
            return scores

    wants = inspect_finish(Judge().finish_group, "judge")
    assert wants.required == ("completions",)
    assert wants.row
    assert wants.reserved == GROUP_NAMES
    for refused in (Judge().no_scores, Judge().by_name):
        with pytest.raises(RegistrationError, match="'judge': finish_group must take the group's scores"):
            inspect_finish(refused, "judge")
    with pytest.raises(RegistrationError, match="finish_group can't take log_metric"):
        inspect_finish(Judge().records, "judge")


@st.composite
def parameter_lists(draw: st.DrawFn) -> str:
    """Source of a parameter list that Python accepts."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=6))
    only, rest = sorted((draw(st.integers(0, len(names))), draw(st.integers(0, len(names)))))
    defaults = draw(st.integers(0, rest))
    parts: list[str] = []
    for place, name in enumerate(names):
        if place == rest:
            parts.append("*")
        default = defaults <= place if place < rest else draw(st.booleans())
        parts.append(f"{name}=None" if default else name)
        if place + 1 == only and draw(st.booleans()):
            parts.append("/")
    if draw(st.booleans()):
        parts.append("**row")
    return ", ".join(parts)


@given(source=parameter_lists(), columns=st.sets(st.sampled_from([*COLUMNS, "level", "seed"])))
def test_a_call_arranged_from_any_signature_binds_and_puts_every_value_in_its_place(
    source: str, columns: set[str]
) -> None:
    """What was accepted can be called, and each parameter gets the value of its own
    name."""
    function = eval(f"lambda {source}: locals()")
    try:
        wants = sample(function)
    except RegistrationError:
        parameters = inspect.signature(function).parameters.values()
        assert any(p.kind is inspect.Parameter.POSITIONAL_ONLY for p in parameters), source
        return
    available = {*SAMPLE_NAMES, *columns}
    if wants.missing(available):
        assert set(wants.missing(available)) <= set(COLUMNS) - columns
        return
    names, by_position = wants.arrange(sorted(available))
    recorders = {name: name for name in wants.records}
    got = (
        function(*names, **recorders) if by_position else function(**dict(zip(names, names, strict=True)), **recorders)
    )
    row = got.pop("row", {})
    assert all(value in (name, None) for name, value in got.items())
    assert {name for name, value in got.items() if value} == set(names) - set(row) | set(recorders)
    assert set(row) == (columns - set(got) if wants.row else set())
