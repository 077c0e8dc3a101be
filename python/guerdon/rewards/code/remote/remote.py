"""Code rewards whose programs run on a server of the user's: requests of the http lane.

- A request has the program and what one case reads; expected values stay here, and so does the
  verdict.
- Work that the sandbox can't do is a failure of the call, with retries; never a wrong program.
- There is always a limit: it has the circuit breaker, and a sandbox that is asked for more than it
  can run makes programs slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from guerdon._functions import options as checked
from guerdon._functions.cache_folder import CacheFolder
from guerdon._functions.conditions import Conditions
from guerdon._functions.factory import Factory
from guerdon._functions.options import Options
from guerdon._functions.policy import checked_policy
from guerdon._functions.signature import Wants
from guerdon._functions.spec import FunctionSpec
from guerdon._lanes.http.server import Server
from guerdon.errors import RegistrationError
from guerdon.limits import DefaultLimit
from guerdon.rewards.code.remote.sandbox_fusion import SandboxFusion
from guerdon.rewards.code.remote.texts import CaseTexts, ProgramTexts
from guerdon.rewards.code.trusted.case_judge import JudgingRules
from guerdon.rewards.code.trusted.reward import CodeReward
from guerdon.rewards.code.trusted.row_texts import COMPLETION, Columns
from guerdon.rewards.code.trusted.scorer import Judging
from guerdon.rewards.code.zygote.command_run import COMPILE_S
from guerdon.rewards.code.zygote.fence import FenceSpec
from guerdon.rewards.code.zygote.languages import LANGUAGES, PYTHON, Language
from guerdon.rewards.code.zygote.level import Level
from guerdon.rewards.plain_columns import BuiltInReward

if TYPE_CHECKING:
    from guerdon.rewards.code.trusted.extract import Extract

__all__ = ["RemoteCodeReward", "remote_language", "remote_reward"]

_PATH: Final = "/run_code"
_RETRIES: Final = 3
# A sandbox runs some programs a core, each in a separate process.
_CONCURRENCY: Final = 64
_NAMES: Final = {"javascript": "nodejs"}
_MIB: Final = 1 << 20


def remote_language(reward: str, name: object, sandbox: SandboxFusion) -> Language:
    """A language that the sandbox runs, with the tags of its fenced blocks."""
    if not isinstance(name, str) or not name:
        raise _wrong(reward, f"language={name!r}: expected the name of a language")
    called: object = sandbox.language
    if called is not None and not (isinstance(called, str) and called):
        raise _wrong(reward, f"SandboxFusion(language={called!r}): expected its name for the language")
    return LANGUAGES.get(name) or Language(name, frozenset({name.lower()}))


def remote_reward(
    factory: Factory,
    options: Options,
    sandbox: SandboxFusion,
    rules: JudgingRules,
    fence: FenceSpec,
    columns: Columns,
    wants: Wants,
    extract: Extract,
    *,
    run_if: Conditions | None,
    pure: bool,
    cache: CacheFolder | None,
) -> RemoteCodeReward:
    """The reward function whose programs run there."""
    name = str(options.name)
    _refuse_local(name, factory.given, rules)
    from guerdon._lanes.http.body import ColumnValue
    from guerdon._lanes.http.options import requests_plan
    from guerdon.rewards.code.remote.judge_thread import ProgramThread

    python = rules.language.name == PYTHON
    request = {
        "compile_timeout": COMPILE_S,
        "memory_limit_MB": -(-fence.memory_limit // _MIB),
        "language": sandbox.language or _NAMES.get(rules.language.name, rules.language.name),
        "files": {},
        "fetch_files": [],
    }
    given = sandbox.server
    server, option = (given, "base_url") if isinstance(given, Server) else (Server(given), "server")
    for own in ("hedge_after", "price", "max_cost"):
        if getattr(server, own) is not None:
            raise RegistrationError(f"reward function {name!r}: a SandboxFusion's server has no {own}=. Leave it out.")
    assert columns.cases is not None
    question = {
        "program": ColumnValue(ProgramTexts(COMPLETION, taken=columns, extract=extract, tags=rules.language.tags)),
        "cases": ColumnValue(CaseTexts(columns.cases, taken=columns, python=python)),
        # Part of the version of cached outcomes.
        "rules": [rules.compare, rules.score, rules.timeout, rules.case_timeout, rules.max_output],
        "request": request,
    }
    # No function of the user's is called where outputs are judged.
    judging = Judging(columns, rules, fence, "last", rules.language.tags, None, Level("remote"))
    programs = ProgramThread(judging, request)
    plan = requests_plan(name, server, question, address=(option, _PATH), api="sandbox", programs=programs)
    plan.check(name)
    wait = checked.seconds(name, "wait", sandbox.wait)
    limit = DefaultLimit(concurrency=_CONCURRENCY) if options.limit is None else options.limit
    retries = _RETRIES if factory.given["retries"] is None else options.retries
    policy = checked_policy(name, replace(options, limit=limit, retries=retries), "sample")
    policy = replace(policy, timeout=rules.timeout + COMPILE_S * (not python) + wait)
    spec = FunctionSpec(
        name=name,
        item=None,
        target=_only_dispatchers,
        lane="http",
        shape="sample",
        policy=policy,
        wants=wants,
        is_async=True,
        decorated=True,
        factory=factory,
        http=plan,
        run_if=run_if,
        pure=pure,
        cache=cache,
    )
    return RemoteCodeReward((factory.make, dict(factory.given)), spec, rules.timeout)


def _refuse_local(name: str, given: Mapping[str, Any], rules: JudgingRules) -> None:
    """Refuses options that say how programs run on this machine, or need them here."""
    if callable(rules.compare):
        raise _wrong(
            name,
            "compare= is a function, which is called for programs on this machine alone: expected 'exact', 'tokens' or "
            "'numbers' with remote=",
        )
    if given["check"] is not None:
        raise _wrong(
            name,
            "check= calls a program's functions back and forth, which a sandbox can't: give the calls as cases with remote=, "
            '[{"fn": …, "args": […], "expected": …}]. Without remote= programs run on this machine, with check=',
        )
    for option, usual in (("command", None), ("compile", None), ("modules", ()), ("isolation", "strict")):
        value = given[option]
        if value != usual and not (option == "modules" and not value):
            raise _wrong(name, f"{option}={value!r}: with remote= the sandbox says how programs run. Leave it out")


def _wrong(name: str, problem: str) -> RegistrationError:
    return RegistrationError(f"code_reward {name!r}: {problem}.")


def _only_dispatchers(*_: object, **__: object) -> NoReturn:
    raise TypeError("a code reward with remote= is requests to a server: only a dispatcher can run it")


class RemoteCodeReward(CodeReward):
    """A reward function whose programs run in a sandbox elsewhere: made by `guerdon.code_reward`
    with ``remote=``.
    """

    def __init__(
        self, made: tuple[Callable[..., CodeReward], dict[str, Any]], spec: FunctionSpec, timeout: float
    ) -> None:
        BuiltInReward.__init__(self, made, replace(spec, item=self, target=self))
        self._timeout = timeout
        self.level = Level("remote")

    def __call__(self, *args: object, **columns: object) -> NoReturn:
        raise TypeError(
            f"{self.name!r} is requests to a sandbox, not a function: only a dispatcher can run it. Pass "
            "Dispatcher([…]).reward_funcs as reward_funcs, or score with Dispatcher([…]).score(…)."
        )

    def close(self) -> None:
        """Nothing: its connections are the dispatcher's."""

    def __repr__(self) -> str:
        from guerdon._lanes.http.address import redacted_url

        plan = self.spec.http
        assert plan is not None
        place = redacted_url(plan.fleet.shown(plan.url))
        return f"<code reward {self.name!r}: {place}, timeout {self._timeout:g} s>"
