"""Plan of a function of the http lane for the engine: plain values, none of them secret, so that a
plan can be pickled and shown."""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from guerdon._functions.options import BATCH_WAIT
from guerdon._lanes.http.address import read_small_file
from guerdon._lanes.http.api_key import ApiKey
from guerdon._lanes.http.cost import Cost
from guerdon._lanes.http.fleet import Fleet
from guerdon._lanes.http.template import Field, MadeField
from guerdon.errors import RegistrationError
from guerdon.parse import Parse

if TYPE_CHECKING:
    from threading import Thread

    from guerdon._functions.lane_plan import Keys
    from guerdon._lanes.http.body import Piece
    from guerdon._native import ProgramQuestions

__all__ = ["Plan"]

# Threads that judge programs: one whose outputs take long to judge leaves the others to the rest.
_JUDGES: Final = 4


class _ProgramJudge(Protocol):
    """Judges programs that a sandbox runs."""

    def serve(self, questions: ProgramQuestions, name: str) -> Thread:
        """Answers questions about the programs of a reward function of this name."""


@dataclass(frozen=True)
class Plan:
    """Plan that turns the calls of one function into requests, and responses into scores.

    Attributes:
        fleet: Where requests go.
        body: Pieces of their JSON; ``fields`` are the columns in it, by number.
        api: ``"chat"``, ``"completions"``, ``"responses"``, ``"anthropic"``, ``"score"``,
            ``"rewards"`` or ``"sandbox"``.
        parse: How a judge's answer is read.
        path: Where the numbers of a reward model or service are; "" for the usual fields.
        batch_size: Samples that a request takes at most; None where it takes one, and not as a
            list.
        batch_wait: Seconds that a sample waits for others, as for `guerdon.reward`.
        criteria: Scores in an answer, each with a reason, of a rubric's requests; None of others.
        others: The plans of the rubric's other criteria, if each has a request of its own. They
            differ in their bodies and parsers.
        ca_file, ca_only, client_cert, client_key: As for `guerdon.judge`.
        programs: Makes the requests that run a program, to which its own body is the question.
    """

    fleet: Fleet
    body: list[Piece]
    fields: tuple[Field, ...]
    api: str
    parse: Parse = field(default_factory=lambda: Parse("number"))
    path: str = ""
    batch_size: int | None = None
    batch_wait: float = BATCH_WAIT
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    secret: ApiKey = field(default_factory=ApiKey)
    http2: bool = False
    ca_file: str | None = None
    ca_only: bool = False
    client_cert: str | None = None
    client_key: str | None = None
    cost: Cost = field(default_factory=Cost)
    programs: _ProgramJudge | None = None
    criteria: int | None = None
    others: tuple[Plan, ...] = ()

    @property
    def url(self) -> str:
        """The first endpoint."""
        return self.fleet.endpoints[0][0]

    def check(self, function: str) -> None:
        """Checks the plan as far as the engine can tell, without reading the key.

        Raises:
            RegistrationError: An option is wrong.
        """
        from guerdon._native import check_http

        try:
            check_http(self.config(function))
        except ValueError as error:
            raise RegistrationError(f"reward function {function!r}: {error}.") from None

    def config(self, function: str, keys: Keys | None = None, tariff: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns the form for the engine.

        Args:
            function: Its name.
            keys: Gets the requests for a key that a function returns, and what begins to answer
                them. None leaves out the key.
            tariff: What its requests cost (`Cost.tariff`).

        Raises:
            RegistrationError: A file can't be read, or the key is not there.
        """
        after = self.fleet.hedge_after
        others = [(other._body(), other._response()) for other in self.others]
        return {
            "endpoints": self.fleet.endpoints,
            "resolve_all": self.fleet.resolve_all,
            "hedging": None if after is None else {"after": dict([after]), "share": self.fleet.hedge_share},
            "body": self._body(),
            "response": self._response(),
            "headers": self.headers,
            "key": None if keys is None else self._key(function, keys),
            "http2": self.http2,
            "authorities": _read(function, "ca_file", self.ca_file),
            "only_these_authorities": self.ca_only,
            "client_certificate": self._client_certificate(function),
            "tariff": tariff,
            "programs": None if keys is None or self.programs is None else self._programs(function, keys),
            "criteria": None if self.criteria is None else (self.criteria, others),
        }

    def identity(self) -> tuple[object, ...]:
        """Returns everything that decides the answer to a request and its score."""
        address = self.fleet.endpoints if self.api in ("rewards", "sandbox") else ()
        read = (self.api, self.path, astuple(self.parse), self.batch_size is not None, self.cost.keep_answers)
        return (
            self.body,
            # Texts that code makes are values of the call.
            [astuple(field) for field in self.fields if not isinstance(field, MadeField)],
            sorted(self.headers),
            [url for url, _ in address],
            *read,
            *(other.identity() for other in self.others),
        )

    def _body(self) -> list[str | dict[str, Any]]:
        return [_tagged(piece) for piece in self.body]

    def _response(self) -> str | dict[str, Any]:
        """The form in which the engine reads a response."""
        if self.api == "sandbox":
            return self.api
        return {self.api: self.path or None} if self.api in ("rewards", "score") else {"judge": (self.api, self.parse)}

    def _key(self, function: str, keys: Keys) -> dict[str, Any] | None:
        """The key, or the place among `keys` of requests for it."""
        from guerdon._native import KeyRequests

        if self.secret.function is not None:
            requests = KeyRequests()
            keys.append((requests, partial(self.secret.serve, requests, function)))
            return {"function": len(keys) - 1}
        key, path = self.secret.read(function), self.secret.path
        if key is None:
            return None
        return {"text": key} if path is None else {"file": (key, os.fsencode(path))}

    def _programs(self, function: str, keys: Keys) -> int:
        from guerdon._native import ProgramQuestions

        assert self.programs is not None
        questions = ProgramQuestions()
        place = len(keys)
        keys += [(questions, partial(self.programs.serve, questions, function))] * _JUDGES
        return place

    def _client_certificate(self, function: str) -> tuple[bytes, bytes] | None:
        chain = _read(function, "client_cert", self.client_cert)
        if chain is None:
            return None
        key = _read(function, "client_key", self.client_key)
        return chain, chain if key is None else key


def _read(function: str, option: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return read_small_file(path)
    except OSError as error:
        raise RegistrationError(
            f"reward function {function!r}: {option}={path!r} can't be read: {error.strerror}."
        ) from None


def _tagged(piece: Piece) -> str | dict[str, Any]:
    if isinstance(piece, bytes):
        return {"raw": piece}
    if isinstance(piece, list):
        return {"each": [_tagged(one) for one in piece]}
    kind, column = piece
    return kind if kind == "repair" else {kind: column}
