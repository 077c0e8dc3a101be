"""A judge or a reward service as it stands in a dispatcher's list.

- R-1  What can't work is refused when it is made, the key excepted: that is looked for when a dispatcher is made of it.
- R-2  It pickles as what it was made from, so without a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from guerdon._http.address import shown
from guerdon._http.body import Pieces
from guerdon._http.plan import Plan
from guerdon._http.secret import Secret
from guerdon._registration import options as checked
from guerdon._registration.options import Options
from guerdon._registration.signature import Wants
from guerdon._registration.spec import FunctionSpec, settled_policy
from guerdon.batching import Batch
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon.limits import Limit

__all__ = ["HttpReward"]

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
_KEY_HEADERS = frozenset(("authorization", "proxy-authorization", "cookie", "api-key", "x-api-key", "x-goog-api-key"))


class HttpReward:
    """A reward function that is a request to a server: made by `guerdon.judge` and `guerdon.remote`.

    Attributes:
        spec: What was settled of it, for the dispatcher.
    """

    __guerdon_decorated__ = True

    def __init__(self, made: tuple[Callable[..., HttpReward], dict[str, Any]], plan: Plan, options: Options) -> None:
        self._made = made
        name = str(options.name)
        plan.config(name, key=False)
        required = tuple(dict.fromkeys(field.column for field in plan.fields))
        for live in ("environment", "trainer_state"):
            if live in required:
                raise RegistrationError(
                    f"reward function {name!r}: {live} is an object of this process, which no request can hold. Name columns of the "
                    "dataset, prompt, completion, completion_ids or text."
                )
        self.spec = FunctionSpec(
            name=name,
            item=self,
            target=self,
            lane="http",
            shape="sample",
            policy=settled_policy(name, options, "sample"),
            wants=Wants(required=required),
            is_async=True,
            decorated=True,
            http=plan,
            batch=None if plan.most is None else Batch(max_size=plan.most, max_wait_ms=0),
        )
        self.__name__ = name

    @property
    def name(self) -> str:
        """Its name in metrics, files and messages."""
        return self.spec.name

    def __call__(self, *args: object, **columns: object) -> NoReturn:
        raise TypeError(
            f"{self.name!r} is a request to a server, not a function: only a dispatcher can run it. Pass "
            "list(Dispatcher([…])) as reward_funcs, or score with Dispatcher([…]).score(…)."
        )

    def __reduce__(self) -> tuple[Callable[..., HttpReward], tuple[Any, ...]]:
        made_by, given = self._made
        return _remade, (made_by, given)

    def __repr__(self) -> str:
        plan = self.spec.http
        return f"<reward function {self.name!r}: {shown(plan.url) if plan else ''}, timeout {self.spec.policy.timeout:g} s>"


def _remade(made_by: Callable[..., HttpReward], given: dict[str, Any]) -> HttpReward:
    return made_by(**given)


def pieces_of(function: str, body: Mapping[str, Any]) -> tuple[list[Any], tuple[Any, ...]]:
    """The pieces of a body and the fields in it.

    Raises:
        RegistrationError: It isn't JSON.
    """
    pieces = Pieces()
    try:
        return pieces.of(body), tuple(pieces.fields)
    except (TypeError, ValueError) as error:
        raise RegistrationError(
            f"reward function {function!r}: the request can't be written as JSON: {error}."
        ) from None


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


def secret(function: str, env: object, file: object) -> Secret:
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


def headers(function: str, given: object, key: Secret) -> tuple[tuple[str, str], ...]:
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
        if "{key}" not in value and name.lower() in _KEY_HEADERS:
            raise RegistrationError(
                f"{wrong}: {name!r} holds a key, which would be in pickles and in the program. Give it as api_key_env= or "
                f"api_key_file=, and the header as {{{name!r}: '… {{key}}'}}."
            )
    return tuple(given.items())


def policy_options(name: str, given: Mapping[str, Any]) -> Options:
    """The options that are those of every reward function."""
    limit: Limit | None = given["limit"]
    return Options(
        name=name,
        timeout=given["timeout"],
        deadline=given["deadline"],
        retries=given["retries"],
        limit=limit,
        on_failure=given["on_failure"],
        max_failed_fraction=given["max_failed_fraction"],
    )
