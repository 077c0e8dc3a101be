"""Plans of functions that a lane makes calls of by itself, as requests or by a kernel. Lanes make
the plans, and the rooms below them read them through these protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from threading import Thread

    from guerdon._native import KeyRequests, ProgramQuestions

__all__ = ["EndpointList", "KernelCalls", "Keys", "RequestPlan", "TextField"]

# Questions of the http lane, for API keys that functions return or about programs, each with what
# begins to answer them.
Keys: TypeAlias = "list[tuple[KeyRequests | ProgramQuestions, Callable[[], Thread]]]"


class TextField(Protocol):
    """A column that the engine gets as texts."""

    @property
    def column(self) -> str:
        """Its name."""

    @property
    def columns(self) -> Sequence[str]:
        """All columns that it takes, its own first."""

    @property
    def optional(self) -> Sequence[str]:
        """Columns that it takes where they are there."""

    @property
    def is_text(self) -> bool:
        """It is the last assistant message, whatever the completion is."""

    def texts(
        self, values: Mapping[str, Any], samples: int, function: str, *, always: bool
    ) -> tuple[str, list[object]] | None:
        """Returns the kind of column that the engine gets, and the column; None where it takes the
        values as they are.

        Args:
            values: Of each column that it takes: one per sample, or a `Single`.
            function: Name of the function, for messages.
            always: Make a column of its own of it in any case, of the same kind each time.

        Raises:
            DataError: A value can't be sent.
        """


class EndpointList(Protocol):
    """The endpoints of one function."""

    @property
    def option(self) -> str:
        """The user's name for the addresses."""

    @property
    def path(self) -> str:
        """The path behind each address."""

    @property
    def endpoints(self) -> tuple[tuple[str, float], ...]:
        """Full URLs, each with its weight."""

    def shown(self, url: str) -> str:
        """An address as the user gave it."""


class _Prices(Protocol):
    @property
    def price(self) -> tuple[float, float, float, float] | None:
        """The cost of a million tokens: input, cached, written to the cache, output."""

    @property
    def max_cost(self) -> float | None:
        """The most that the requests of a run may cost."""

    @property
    def longest_answer(self) -> int | None:
        """Tokens that an answer has at most, where the request says so."""

    def tariff(self, function: str, key: str | None) -> dict[str, Any]:
        """Returns the form for the engine."""


class _Secret(Protocol):
    @property
    def env(self) -> str | None:
        """The variable that holds the key."""

    def read(self, function: str) -> str | None:
        """The key.

        Raises:
            RegistrationError: There is none where it should be.
        """


class RequestPlan(Protocol):
    """Turns the calls of one function into requests."""

    @property
    def fleet(self) -> EndpointList:
        """Endpoints of the requests."""

    @property
    def url(self) -> str:
        """The first endpoint."""

    @property
    def body(self) -> list[Any]:
        """Pieces of their JSON."""

    @property
    def fields(self) -> tuple[TextField, ...]:
        """The columns in it, by number."""

    @property
    def api(self) -> str:
        """Protocol of the server."""

    @property
    def cost(self) -> _Prices:
        """Prices of the requests."""

    @property
    def secret(self) -> _Secret:
        """The API key."""

    def config(self, function: str, keys: Keys | None = None, tariff: dict[str, Any] | None = None) -> dict[str, Any]:
        """Returns the form for the engine; without `keys`, without the API key."""

    def identity(self) -> tuple[object, ...]:
        """Everything that decides the answer to a request and its score."""


class KernelCalls(Protocol):
    """A kernel and the columns that it gets."""

    @property
    def fields(self) -> tuple[TextField, ...]:
        """Its columns, in order."""

    def config(self) -> tuple[str, list[str]]:
        """Returns the form for the engine."""
