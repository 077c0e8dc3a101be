"""``remote``: a reward service behind a URL, as a reward function that needs no Python for a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from guerdon._http.address import address
from guerdon._http.body import Each, Filled
from guerdon._http.options import label, made, more, text
from guerdon._http.reward import HttpReward
from guerdon._http.template import Field
from guerdon.errors import RegistrationError
from guerdon.limits import Limit

__all__ = ["http_reward"]

_MOST = 65536  # as of a Batch
_PLURAL = {"prompt": "prompts", "completion": "completions", "text": "texts"}


def http_reward(
    url: str,
    *,
    columns: Sequence[str] | Mapping[str, str] = ("prompt", "completion"),
    batch: int | None = None,
    score: str | None = None,
    body: Mapping[str, Any] | None = None,
    api_key_env: str | None = None,
    api_key_file: str | None = None,
    headers: Mapping[str, str] | None = None,
    http2: bool = False,
    ca_file: str | None = None,
    name: str = "remote",
    timeout: float | None = None,
    total_timeout: float | None = None,
    retries: int = 3,
    limit: Limit | None = None,
    on_failure: str | float = "nan",
    max_failure_rate: float | None = None,
) -> HttpReward:
    """Make a reward function that POSTs samples as JSON to a reward service, one a request or up to ``batch``.

    One sample goes as ``{"prompt": …, "completion": …}``, many as ``{"prompts": […], "completions": […]}``. The answer is
    ``{"score": 0.5}``, ``{"reward": 0.5}`` or a number; for many ``{"rewards": […]}``, ``{"scores": […]}`` or a list, in the
    order of the request; the values are numbers, objects with ``"score"`` or ``"reward"``, or null, which abstains.

    Args:
        url: Where to POST.
        columns: What is sent: names of dataset columns, ``prompt``, ``completion``, ``completion_ids``, ``text``; a mapping
            says how the service calls them, ``{"query": "completion", "label": "answer"}``.
        batch: Samples a request at most; None sends one, as fields and not as lists. A request that fails is made again
            in halves, down to the sample that is to blame, unless no sample is: no connection, 401, 403, 404, 429.
        score: Where the numbers are in the answer, with dots: ``"result.score"``, ``"data.*.score"`` for a field of each
            object of a list.
        limit: Requests at a time, 256 by default, and a minute; tokens are those of a whole request.
        body: More fields of the request's JSON.
        api_key_env: As for `guerdon.judge`, like all the others.
        name: In metrics, files and messages, unique in a dispatcher.

    Raises:
        RegistrationError: Something of it can't work.

    Examples:
        >>> from guerdon import http_reward
        >>> http_reward("http://localhost:9000/rewards", columns=["completion", "answer"], batch=32, name="checker")
        <reward function 'checker': http://localhost:9000/rewards, timeout 30 s>
    """
    given = dict(locals())
    name = label(name)
    most = _most(name, batch)
    sent = _columns(name, columns, many=batch is not None)
    place = Filled if batch is None else Each
    places = {key: place(Field(column, json=True)) for key, column in sent.items()}
    return made(
        http_reward,
        given,
        {**more(name, body), **places},
        url=address(name, "url", url),
        api="rewards",
        path="" if score is None else text(name, "score", score),
        most=most,
    )


def _columns(name: str, given: object, *, many: bool) -> dict[str, str]:
    """Columns by the names under which they are sent."""
    wrong = RegistrationError(
        f"reward function {name!r}: columns={given!r}: expected names of columns, or a dict from the service's names to them."
    )
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, Sequence) and not isinstance(given, str):
        pairs = [(_PLURAL.get(column, column) if many else column, column) for column in given]
    else:
        raise wrong
    if not pairs or not all(isinstance(each, str) and each for pair in pairs for each in pair):
        raise wrong
    return dict(pairs)


def _most(name: str, batch: object) -> int | None:
    if batch is None:
        return None
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= _MOST:
        raise RegistrationError(
            f"reward function {name!r}: batch={batch!r}: expected a whole number from 1 to {_MOST}, or None."
        )
    return batch
