"""Interface of a protocol to the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from guerdon._serve.errors import RequestError
from guerdon._serve.samples import Outcome, Request

Reader = Callable[[Mapping[str, Any], Mapping[str, str]], Request]
"""Makes the samples of a request out of the fields of its JSON and of its query."""

Writer = Callable[[Mapping[str, Any], Request, Sequence[Outcome]], Any]
"""Makes an answer out of the request's fields, its samples and their outcomes."""


@dataclass(frozen=True)
class ClientProtocol:
    """A protocol.

    Attributes:
        path: Where it is spoken.
        read: Raises `RequestError` for what it can't read.
        write: Raises `RequestError` for what it has no word for.
        takes_groups: A request can have the samples of whole groups.
        options: What can stand in the address. Others are refused: `?functoin=` would else be
            answered by another reward than was asked for.
    """

    path: str
    read: Reader
    write: Writer
    takes_groups: bool = True
    options: tuple[str, ...] = ("function",)


def rewards_or_refuse(outcomes: Sequence[Outcome]) -> list[float]:
    """The rewards, for a protocol that knows numbers alone.

    Raises:
        RequestError: 422, a sample has none; with the reason.
    """
    rewards: list[float] = []
    for index, outcome in enumerate(outcomes):
        if outcome.reward is None:
            raise RequestError(422, f"sample {index} has no reward: {describe(outcome)}.")
        rewards.append(outcome.reward)
    return rewards


def describe(outcome: Outcome) -> str:
    """The status of an outcome without reward, with its reason where it has one."""
    return outcome.status.label if outcome.reason is None else f"{outcome.status.label}: {outcome.reason}"
