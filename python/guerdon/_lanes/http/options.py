"""The options that `guerdon.judge` and `guerdon.http_reward` share: checks, and the reward
function.

- Wrong options are refused at once; no message shows a possible key.
- There is always a limit: a server that throttles is left alone, and a circuit breaker opens for
  one that is down.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guerdon._functions import options as checked
from guerdon._functions.options import Options
from guerdon._lanes.http.api_key import ApiKey
from guerdon._lanes.http.body import Pieces, TemplateText
from guerdon._lanes.http.cost import of_options
from guerdon._lanes.http.fleet import fleet_of
from guerdon._lanes.http.leaked_keys import is_key, names_a_key
from guerdon._lanes.http.plan import Plan
from guerdon._lanes.http.reward import HttpReward
from guerdon._lanes.http.server import Server, server_of
from guerdon._lanes.http.tls import tls_options, warn_of_plain_keys
from guerdon.errors import RegistrationError
from guerdon.limits import DefaultLimit

__all__ = ["build", "extra_body", "name_of", "non_empty_text", "requests_plan"]

# They say how the request is sent: with another value the server would read its body wrongly.
_OWN_HEADERS = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)


_POLICY = (
    "timeout",
    "total_timeout",
    "retries",
    "on_failure",
    "max_failure_rate",
    "run_if",
    "otherwise",
    "cache",
    "cache_version",
)


def build(
    by: Callable[..., HttpReward],
    given: dict[str, Any],
    request: Mapping[str, Any],
    *,
    address: tuple[str, str],
    same_answers: bool,
    usual_headers: Mapping[str, str] | None = None,
    **own: Any,
) -> HttpReward:
    """Returns the reward function that `by` makes of its options.

    Args:
        given: All arguments of `by`, as they came.
        request: The JSON of a request, with `TemplateText`, `ColumnValue` and `ColumnValues` in it.
        address: The argument that says where the server is, and the path that is added to it.
        same_answers: The same request gets the same answer, as far as the options say.
        usual_headers: Those of the API, where no others are given.
        own: What the plan holds beside the options of both.

    Raises:
        RegistrationError: An option is wrong.
    """
    name = name_of(given["name"])
    server, option = server_of(name, given, address[0])
    keep_answers = given.get("keep_answers", False)
    plan = requests_plan(
        name,
        server,
        request,
        address=(option, address[1]),
        usual_headers=usual_headers,
        keep_answers=keep_answers,
        **own,
    )
    # The options of every reward function. There is always a limit: it has the circuit breaker.
    policy = {option: given[option] for option in _POLICY}
    pure = same_answers if given["pure"] is None and given["cache"] is None else given["pure"]
    limit = DefaultLimit() if given["limit"] is None else given["limit"]
    return HttpReward((by, given), plan, Options(name=name, limit=limit, pure=pure, **policy))


def requests_plan(
    name: str,
    server: Server,
    request: Mapping[str, Any],
    *,
    address: tuple[str, str],
    usual_headers: Mapping[str, str] | None = None,
    keep_answers: object = False,
    **own: Any,
) -> Plan:
    """Returns the plan of a function's requests.

    Args:
        name: The function's, for messages; the others are those of `build`.

    Raises:
        RegistrationError: An option is wrong.
    """
    fleet = fleet_of(name, *address, server)
    pieces, fields = _pieces(name, request)
    _refuse_keys(name, request)
    key = _secret(name, server.api_key_env, server.api_key_file, server.api_key)
    first = fleet.endpoints[0][0]
    tls = tls_options(name, first, server)
    headers = _with_usual(_headers(name, server.headers, key), usual_headers or {}, key)
    warn_of_plain_keys(name, (url for url, _ in fleet.endpoints), key)
    return Plan(
        fleet=fleet,
        body=pieces,
        fields=fields,
        headers=headers,
        secret=key,
        http2=checked.flag(name, "http2", server.http2),
        **tls,
        cost=of_options(name, server.price, server.max_cost, keep_answers, request),
        **own,
    )


def extra_body(function: str, body: object) -> Mapping[str, Any]:
    """``body=``: more fields of the request's JSON.

    Raises:
        RegistrationError: It is not a dict.
    """
    if body is None:
        return {}
    if not isinstance(body, Mapping):
        raise RegistrationError(
            f"reward function {function!r}: body={body!r}: expected a dict of fields of the request."
        )
    return body


def name_of(value: object) -> str:
    """A name, checked.

    Raises:
        RegistrationError: It is something else.
    """
    name = checked.label(str(value), "name", value)
    if name is None:
        raise RegistrationError("name=None: a judge or reward service needs a name.")
    return name


def non_empty_text(function: str, option: str, value: object) -> str:
    """A text that isn't empty.

    Raises:
        RegistrationError: It is something else.
    """
    if not isinstance(value, str) or not value.strip():
        raise RegistrationError(f"reward function {function!r}: {option}={value!r}: expected a non-empty string.")
    return value


def _pieces(function: str, body: Mapping[str, Any]) -> tuple[list[Any], tuple[Any, ...]]:
    """The pieces of a body and the fields in it.

    Raises:
        RegistrationError: It isn't JSON.
    """
    pieces = Pieces()
    try:
        return pieces.of(body), tuple(pieces.fields)
    except (TypeError, ValueError, RecursionError) as error:
        why = "it contains itself, or is nested too deeply" if isinstance(error, RecursionError) else error
        raise RegistrationError(f"reward function {function!r}: the request can't be encoded as JSON: {why}.") from None


def _secret(function: str, env: object, file: object, given: object) -> ApiKey:
    """Returns the source of the key.

    Raises:
        RegistrationError: It is in two places, or what was given is the key itself.
    """
    if sum(place is not None for place in (env, file, given)) > 1:
        raise RegistrationError(
            f"reward function {function!r}: pass only one of api_key_env=, api_key_file= and api_key=."
        )
    if given is not None and (not callable(given) or inspect.iscoroutinefunction(given)):
        # It may be the key itself, so it is not shown.
        raise RegistrationError(
            f"reward function {function!r}: api_key=: expected a function (not an async one) that returns the key. A key that "
            "does not change goes into the environment, api_key_env='OPENAI_API_KEY', or into a file, api_key_file=."
        )
    if env is not None and not (isinstance(env, str) and env.isidentifier()):
        # It may be the key itself, so it is not shown.
        raise RegistrationError(
            f"reward function {function!r}: api_key_env= names the environment variable that holds the key, as in "
            "api_key_env='OPENAI_API_KEY'; the given value can't be such a name."
        )
    if file is not None and not isinstance(file, (str, os.PathLike)):
        raise RegistrationError(f"reward function {function!r}: api_key_file=: expected the name of a file.")
    return ApiKey(env, None if file is None else os.fspath(file), given)


def _refuse_keys(function: str, value: object, name: str = "") -> None:
    """Looks through the JSON of a request, before columns are filled in.

    Raises:
        RegistrationError: A key stands in it .
    """
    if isinstance(value, str):
        if value and (names_a_key(name) or is_key(value)):
            raise RegistrationError(
                f"reward function {function!r}: the field {name!r} of the request holds a key, which would be in pickles and in "
                "the program. Pass it as api_key_env= or api_key_file=, with headers={'the-header': '{key}'} if it is no "
                "bearer token."
            )
    elif isinstance(value, Mapping):
        for each, inner in value.items():
            _refuse_keys(function, inner, str(each))
    elif isinstance(value, Sequence) and not isinstance(value, TemplateText):
        for inner in value:
            _refuse_keys(function, inner, name)


def _headers(function: str, given: object, key: ApiKey) -> tuple[tuple[str, str], ...]:
    """Headers of every request.

    Raises:
        RegistrationError: They aren't texts, or can't go with a request of ours.
    """
    if given is None:
        return ()
    wrong = f"reward function {function!r}: headers"  # their contents may be a key: not shown
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for pair in given.items() for each in pair):
        raise RegistrationError(f"{wrong}=: expected a dict of strings.")
    for name, value in given.items():
        if any("\ud800" <= character <= "\udfff" for character in name + value):
            raise RegistrationError(f"{wrong}: {name!r} has half a surrogate, which no request can hold.")
        if name.lower() in _OWN_HEADERS:
            raise RegistrationError(f"{wrong}: {name!r} is set by guerdon. Leave it out.")
        if "{key}" in value and key == ApiKey():
            raise RegistrationError(
                f"{wrong}: {name!r} uses {{key}}, but none of api_key_env=, api_key_file= and api_key= is given."
            )
        if "{key}" not in value and (names_a_key(name) or is_key(value)):
            raise RegistrationError(
                f"{wrong}: {name!r} holds a key, which would be in pickles and in the program. Pass it as api_key_env= or "
                f"api_key_file=, and the header as {{{name!r}: '… {{key}}'}}."
            )
    return tuple(given.items())


def _with_usual(
    given: tuple[tuple[str, str], ...], usual: Mapping[str, str], key: ApiKey
) -> tuple[tuple[str, str], ...]:
    """The headers given, and the usual ones that aren't among them; a key goes by one of them."""
    placed = key == ApiKey() or any("{key}" in value for _, value in given)
    names = {name.lower() for name, _ in given}
    added = (
        (name, value)
        for name, value in usual.items()
        if name.lower() not in names and not (placed and "{key}" in value)
    )
    return (*given, *added)
