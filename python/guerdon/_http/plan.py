"""What the engine must know about a function of the http lane: plain values, none of them secret,
so that a plan can be pickled and shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guerdon._http.address import read_small_file
from guerdon._http.api_key import ApiKey
from guerdon._http.template import Field
from guerdon._registration.options import BATCH_WAIT
from guerdon.errors import RegistrationError
from guerdon.parse import Parse

if TYPE_CHECKING:
    from guerdon._http.body import Piece
    from guerdon._native import HttpConfig

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """How the calls of one function become requests, and responses scores.

    Attributes:
        url: Where requests go.
        body: Pieces of their JSON; ``fields`` are the columns in it, by number.
        api: ``"chat"``, ``"completions"`` or ``"rewards"``.
        parse: How a judge's answer is read.
        path: Where a reward service's numbers are; "" for the usual fields.
        batch_size: Samples that a request takes at most; None where it takes one, and not as a
            list.
        batch_wait: Seconds that a sample waits for others, as for `guerdon.reward`.
    """

    url: str
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

    def config(self, function: str, *, key: bool = True) -> HttpConfig:
        """As the engine takes it, with the API key.

        Args:
            key: False to check the rest without reading the key.

        Raises:
            RegistrationError: An option is wrong.
        """
        from guerdon._native import HttpConfig

        try:
            return HttpConfig(
                self.url,
                body=self.body,
                api=self.api,
                parse=self.parse.kind,
                value=self.path if self.api == "rewards" else self.parse.value,
                words=dict(self.parse.words),
                others=list(self.parse.others),
                headers=list(self.headers),
                key=self.secret.read(function) if key else None,
                http2=self.http2,
                authorities=self._authorities(function),
            )
        except RegistrationError:
            raise
        except (ValueError, TypeError) as error:
            raise RegistrationError(f"reward function {function!r}: {error}.") from None

    def _authorities(self, function: str) -> bytes | None:
        if self.ca_file is None:
            return None
        try:
            return read_small_file(self.ca_file)
        except OSError as error:
            raise RegistrationError(
                f"reward function {function!r}: ca_file={self.ca_file!r} can't be read: {error.strerror}."
            ) from None
