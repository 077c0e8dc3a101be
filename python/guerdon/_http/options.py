"""What `guerdon.judge` and `guerdon.http_reward` have in common: their options, checked, and the reward function made of them.

- O-1  What can't work is refused where it is given; nothing that may be a key is shown.
- O-2  An option of both is read here and nowhere else: they name it, describe it, and hand it on as it was given.
- O-3  A server is an endpoint, whether or not the user says so: with the default options too it is left alone when it says "later", and
       calls wait while it is dead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guerdon._http.body import Pieces, Text
from guerdon._http.mislaid import is_key, names_a_key
from guerdon._http.plan import Plan
from guerdon._http.reward import HttpReward
from guerdon._http.secret import Secret
from guerdon._registration import options as checked
from guerdon._registration.options import Options
from guerdon.errors import RegistrationError
from guerdon.limits import Limit

__all__ = ["label", "made", "more", "text"]

_AT_ONCE = 256  # as of the engine, where a limit says nothing of it
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


def made(by: Callable[..., HttpReward], given: dict[str, Any], request: Mapping[str, Any], **own: Any) -> HttpReward:
    """The reward function that `by` makes of what it was given.

    Args:
        given: All arguments of `by`, as they came.
        request: The JSON of a request, with `Text`, `Filled` and `Each` in it.
        own: What the plan holds beside the options of both.

    Raises:
        RegistrationError: O-1.
    """
    name = label(given["name"])
    pieces, fields = _pieces(name, request)
    _refuse_keys(name, request)
    key = _secret(name, given["api_key_env"], given["api_key_file"])
    ca_file = given["ca_file"]
    plan = Plan(
        body=pieces,
        fields=fields,
        headers=_headers(name, given["headers"], key),
        secret=key,
        http2=checked.flag(name, "http2", given["http2"]),
        ca_file=None if ca_file is None else str(ca_file),
        **own,
    )
    # The options of every reward function. Without a limit of its own it has one all the same (O-3).
    policy = {
        option: given[option] for option in ("timeout", "total_timeout", "retries", "on_failure", "max_failure_rate")
    }
    limit = Limit(concurrency=_AT_ONCE) if given["limit"] is None else given["limit"]
    return HttpReward((by, given), plan, Options(name=name, limit=limit, **policy))


def more(function: str, body: object) -> Mapping[str, Any]:
    """``body=``: more fields of the request's JSON.

    Raises:
        RegistrationError: It is no dict.
    """
    if body is None:
        return {}
    if not isinstance(body, Mapping):
        raise RegistrationError(
            f"reward function {function!r}: body={body!r}: expected a dict of fields of the request."
        )
    return body


def label(value: object) -> str:
    """A name, checked.

    Raises:
        RegistrationError: It is none.
    """
    name = checked.label(str(value), "name", value)
    if name is None:
        raise RegistrationError("name=None: a judge or reward service needs a name.")
    return name


def text(function: str, option: str, value: object) -> str:
    """A text that isn't empty.

    Raises:
        RegistrationError: It is something else.
    """
    if not isinstance(value, str) or not value.strip():
        raise RegistrationError(f"reward function {function!r}: {option}={value!r}: expected a text.")
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
        why = "it holds itself, or is nested without end" if isinstance(error, RecursionError) else error
        raise RegistrationError(f"reward function {function!r}: the request can't be written as JSON: {why}.") from None


def _secret(function: str, env: object, file: object) -> Secret:
    """Where the key is.

    Raises:
        RegistrationError: It is in two places, or what was given is the key itself.
    """
    if env is not None and file is not None:
        raise RegistrationError(f"reward function {function!r}: give api_key_env= or api_key_file=, not both.")
    if env is not None and not (isinstance(env, str) and env.isidentifier()):
        # It may be the key itself, so it is not shown.
        raise RegistrationError(
            f"reward function {function!r}: api_key_env= names the variable of the environment that holds the key, as in "
            "api_key_env='OPENAI_API_KEY'; what was given can't be such a name."
        )
    return Secret(env, None if file is None else str(file))


def _refuse_keys(function: str, value: object, name: str = "") -> None:
    """Looks through the JSON of a request, before columns are filled in.

    Raises:
        RegistrationError: A key stands in it (M-1 of `mislaid`).
    """
    if isinstance(value, str):
        if value and (names_a_key(name) or is_key(value)):
            raise RegistrationError(
                f"reward function {function!r}: the field {name!r} of the request holds a key, which would be in pickles and in "
                "the program. Give it as api_key_env= or api_key_file=, with headers={'the-header': '{key}'} if it is no "
                "bearer token."
            )
    elif isinstance(value, Mapping):
        for each, inner in value.items():
            _refuse_keys(function, inner, str(each))
    elif isinstance(value, Sequence) and not isinstance(value, Text):
        for inner in value:
            _refuse_keys(function, inner, name)


def _headers(function: str, given: object, key: Secret) -> tuple[tuple[str, str], ...]:
    """Headers of every request.

    Raises:
        RegistrationError: They aren't texts, or can't go with a request of ours.
    """
    if given is None:
        return ()
    wrong = f"reward function {function!r}: headers"  # what stands in them may be a key: not shown
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for pair in given.items() for each in pair):
        raise RegistrationError(f"{wrong}=: expected a dict of texts.")
    for name, value in given.items():
        if name.lower() in _OWN_HEADERS:
            raise RegistrationError(f"{wrong}: {name!r} is set by the engine, which knows what it sends. Leave it out.")
        if "{key}" in value and key == Secret():
            raise RegistrationError(
                f"{wrong}: {name!r} has a place for {{key}}, but there is no api_key_env= or api_key_file=."
            )
        if "{key}" not in value and (names_a_key(name) or is_key(value)):
            raise RegistrationError(
                f"{wrong}: {name!r} holds a key, which would be in pickles and in the program. Give it as api_key_env= or "
                f"api_key_file=, and the header as {{{name!r}: '… {{key}}'}}."
            )
    return tuple(given.items())
