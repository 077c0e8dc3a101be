"""Requests of a judge's checks, their number, and their highest cost: known before the first.

- Sample judges are asked three times about each row as it is and once about a longer form;
  comparisons five times about each pair.
- A cap on the cost lowers the number of rows; while it runs, the engine enforces the cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from guerdon._functions.spec import FunctionSpec
from guerdon.profile.subject import Case, Subject

__all__ = [
    "JUDGE_SAMPLES",
    "PAIR_CALLS",
    "SAMPLE_CALLS",
    "JudgePlan",
    "asked_about",
    "is_judge",
    "plan_judge",
    "units_of",
]

JUDGE_SAMPLES: Final = 20
SAMPLE_CALLS: Final = 4
PAIR_CALLS: Final = 5
_TOKEN: Final = 4
_ANSWER_TOKENS: Final = 256


@dataclass(frozen=True)
class JudgePlan:
    """Requests that the check of one judge makes.

    Attributes:
        rows: Rows, or pairs of completions, as `about` says.
        requests: At most so many.
        cost: Estimated, in the currency of ``price=``; None where it has none.
        lowered: `rows` is less than wished, to stay below the cap.
    """

    name: str
    rows: int
    requests: int
    cost: float | None
    lowered: bool = False
    about: str = "row"

    def __str__(self) -> str:
        cost = "cost unknown, it has no price=" if self.cost is None else f"about {self.cost:.2g} by its price="
        less = f", fewer {self.about}s to stay below --max-cost" if self.lowered else ""
        return f"judge {self.name!r}: {self.requests} requests about {self.rows} {self.about}s, {cost}{less}"


def is_judge(spec: FunctionSpec) -> bool:
    """Returns whether the function calls a model; reward services are not judges."""
    made = getattr(spec.item, "_made", None)
    if spec.composition is not None:
        return any(is_judge(member) for member in spec.called)
    return spec.lane == "http" and (made is None or getattr(made[0], "__name__", "") != "http_reward")


def asked_about(spec: FunctionSpec) -> str:
    """Returns what a judge is asked about, ``"pair"`` (of completions) or ``"row"``."""
    return "pair" if spec.composition is not None and spec.composition.comparisons is not None else "row"


def units_of(specs: Sequence[FunctionSpec]) -> list[tuple[FunctionSpec, ...]]:
    """The functions, each with the columns that its requests fill too (of a rubric)."""
    return [
        (spec, *(each for each in specs if each is not spec and _asks(each) == spec.name))
        for spec in specs
        if _asks(spec) == spec.name
    ]


def _asks(spec: FunctionSpec) -> str:
    """The function that makes its requests: of a rubric's columns the first."""
    columns = () if spec.composition is None else spec.composition.columns
    return columns[0] if columns else spec.name


def plan_judge(subject: Subject, cases: Sequence[Case], samples: int, max_cost: float | None) -> JudgePlan:
    """Plan the checks of one judge.

    Args:
        subject: The judge, with the rows.
        cases: Completions of the rows.
        samples: Rows that it may be asked about.
        max_cost: What all of it may cost; without a price it does not count.
    """
    spec = subject.spec
    pairwise = asked_about(spec) == "pair"
    wished = min(samples, len(cases) if not pairwise else max(1, len(cases) - 1))
    requests = (PAIR_CALLS if pairwise else SAMPLE_CALLS) * _requests(spec)
    each = _cost(subject, cases, requests)
    chosen = wished
    if each and max_cost is not None:
        chosen = min(wished, int(max_cost / each))
    cost = None if each is None else chosen * each
    return JudgePlan(spec.name, chosen, chosen * requests, cost, lowered=chosen < wished, about=asked_about(spec))


def _requests(spec: FunctionSpec) -> int:
    """Requests of one call, or of one comparison."""
    composition = spec.composition
    if composition is None:
        return int(spec.lane == "http")
    if composition.in_turn:
        return len(composition.columns)
    return (composition.votes or 1) * sum(map(_requests, composition.members))


def _cost(subject: Subject, cases: Sequence[Case], requests: int) -> float | None:
    """Estimated cost of so many requests about one row: a token for four characters."""
    spec = subject.spec
    prices = [plan.cost.price for plan in spec.plans if plan.cost.price is not None]
    if not prices or not cases:
        return None
    shown = cases[:50]
    texts = [str(text) for case in shown for text in (case.completion, subject.rows[case.row].get("prompt", ""))]
    characters = sum(map(len, texts))
    template = max(_characters(plan.body) for plan in spec.plans)
    tokens = (2 * characters / len(shown) + template) / _TOKEN
    made: dict[str, Any] = getattr(spec.item, "_made", (None, {}))[1]
    answer = made.get("max_tokens") or _ANSWER_TOKENS
    price = max(prices)
    return requests * (tokens * price[0] + answer * price[-1]) / 1e6


def _characters(body: Any) -> int:
    if isinstance(body, bytes):
        return len(body)
    return sum(_characters(piece) for piece in body) if isinstance(body, list) else 0
