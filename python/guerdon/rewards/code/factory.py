"""``code_reward``: programs in completions as a reward function."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from typing import Any, Final, Literal

from guerdon._functions import options as checked
from guerdon._functions.cache_folder import Cache, checked_cache
from guerdon._functions.conditions import RunIf, checked_run_if
from guerdon._functions.factory import Factory
from guerdon._functions.options import Options
from guerdon._functions.policy import checked_policy
from guerdon._functions.signature import Wants
from guerdon._functions.spec import FunctionSpec
from guerdon._system.units import EXPECTED_BYTES, as_bytes
from guerdon.errors import RegistrationError, with_known_options
from guerdon.limits import Limit
from guerdon.rewards.code.remote.remote import remote_language, remote_reward
from guerdon.rewards.code.remote.sandbox_fusion import SandboxFusion
from guerdon.rewards.code.trusted.case_judge import JudgingRules
from guerdon.rewards.code.trusted.compare import RULES, Compare
from guerdon.rewards.code.trusted.extract import Extract
from guerdon.rewards.code.trusted.judge import BESIDE_S, REFERENCE_S, Judge
from guerdon.rewards.code.trusted.judgement import Score
from guerdon.rewards.code.trusted.reward import CodeReward
from guerdon.rewards.code.trusted.row_texts import COMPLETION, Columns
from guerdon.rewards.code.trusted.scorer import Judging
from guerdon.rewards.code.zygote.command_run import COMPILE_S
from guerdon.rewards.code.zygote.deadline import wall_seconds
from guerdon.rewards.code.zygote.fence import FenceSpec
from guerdon.rewards.code.zygote.fence_probe import probe
from guerdon.rewards.code.zygote.languages import language_of, wrong
from guerdon.rewards.code.zygote.readable import folders_of, holding

__all__ = ["code_reward"]

# Beside a program's own time: its process, comparisons, a zygote that has to be started again.
_OVERHEAD_S: Final = 30.0
# Time to start a judge again, and for imports of the user's functions.
_START_S: Final = 60.0
_LEAST_MEMORY: Final = 64 << 20
# Largest arguments of the system's calls: milliseconds in 31 bits, bytes in 63.
_LONGEST_S: Final = 1e6
_MOST_BYTES: Final = 1 << 62
# A column of tests is run on the trusted side: it must never be what a model wrote.
_NO_COLUMNS: Final = ("completion", "completions", "completion_ids", "text", "prompt", "prompts")


@with_known_options
def code_reward(
    *,
    cases: str = "cases",
    check: str | Callable[..., Any] | None = None,
    entry_point: str = "entry_point",
    prelude: str | None = None,
    language: str = "python",
    command: Sequence[str] | None = None,
    compile: Sequence[str] | None = None,
    timeout: float = 10.0,
    case_timeout: float | None = None,
    memory_limit: int | str = "512MiB",
    max_output: int | str = "8MiB",
    compare: Compare = "exact",
    score: Score = "all",
    extract: Extract = "last",
    modules: Sequence[str] = (),
    isolation: Literal["strict", "none"] = "strict",
    remote: SandboxFusion | None = None,
    name: str = "code",
    total_timeout: float | None = None,
    setup_timeout: float = 300.0,
    retries: int | None = None,
    limit: Limit | None = None,
    on_failure: str | float = "nan",
    max_failure_rate: float | None = None,
    run_if: RunIf | None = None,
    otherwise: float | None = None,
    pure: bool | None = None,
    cache: str | PathLike[str] | Cache | None = None,
    cache_version: str | None = None,
) -> CodeReward:
    """Make a reward function that runs the program in a completion and judges its results
    (docs/code.md).

    Each program runs in a separate process, behind fences. It gets one input at a time and gives
    back data; cases, tests and expected values stay on the trusted side. A program that is wrong,
    hangs or crashes scores 0; a fault of the row (a row without cases, say) is a failure, NaN.

    Args:
        cases: The column with a list of cases a row: ``{"stdin": …, "stdout": …}`` or ``{"fn": …,
            "args": […], "kwargs": {…}, "expected": …}``, or such a list as JSON. No column may be
            what the model wrote, or the prompt: tests are run on the trusted side.
        check: Instead of cases, the column with tests: Python code, HumanEval's ``check`` or
            asserts, or a list of them, each a case. Or a function ``check(candidate, …)`` whose
            other parameters name columns; it returns True or False, a number from 0 to 1, or
            nothing, and fails a program by an exception. Both run on the trusted side, with a proxy
            of the program's function.
        entry_point: The column, if there is one, with the name of the function that is tested:
            ``name``, ``Class.method`` or ``Class().method``.
        prelude: The column with code to which the program belongs: HumanEval's prompt. Its names
            are there for the program and the tests.
        language: ``"python"``, ``"cpp"``, ``"c"`` or ``"javascript"``; or any other, with
            ``command``. Only Python has cases that call functions, and ``check``.
        command: What runs a program, without a shell: ``["node", "{file}"]``; ``["{out}"]`` runs
            what was compiled.
        compile: What compiles it first: ``["gcc", "-o", "{out}", "{file}"]``. It runs behind the
            same fences, for at most 30 s.
        timeout: Seconds of a processor that all cases of a program may take; by the clock on the
            wall at most three times as long, and a second.
        case_timeout: Seconds for one case. Default: what is left of ``timeout``; with
            ``score="share"`` that is divided among the cases that are left. The definition of
            functions is not a case: it has half of what is left.
        memory_limit: Memory of a program's process, in bytes or as a text like ``"512MiB"``; of
            JavaScript's at least 1 GiB.
        max_output: What it may print, on standard output and error together, or return, in a case.
        compare: When an output is right. ``"exact"``: but for white space at the ends of lines and
            of the text, tuples as lists. ``"tokens"``: but for any white space. ``"numbers"``:
            tokens, and numbers but for 1e-6, absolute or of their value. Or a function of what was
            expected and what came, and of the input if it has three parameters (the text that was
            read, or the list of arguments), on the trusted side.
        score: ``"all"``: 1 if all cases pass, else 0. ``"share"``: the share that passes.
        extract: Where the program is: ``"last"`` or ``"first"`` fenced block of the language (one
            without a tag is) that defines the tested function, ``"whole"``, all of the completion
            where it has no such block, or a function of its text; where that raises, the completion
            scores 0.
        modules: Modules to import before programs run, as those that many of them need.
        isolation: ``"strict"``, or ``"none"``: programs run with the rights of this user.
        remote: A `SandboxFusion`: programs run on that server, by requests of the http lane, behind
            whatever fences it has. ``isolation``, ``modules``, ``command`` and ``compile`` are the
            server's then, and ``check`` and a function as ``compare`` need this machine.
        name: In metrics, files and messages; unique in a dispatcher.
        total_timeout: Seconds for a sample, queueing included. Default: none.
        setup_timeout: Seconds for the start of a worker's zygote.
        retries: Attempts after the first, for failures; a wrong program is none. Default: 0, with
            ``remote`` 3, as for `guerdon.judge`.
        limit: ``Limit(concurrency=…)``: programs at once. Default: one a worker, with ``remote`` 64
            and fewer while the server throttles.
        on_failure: What a failed cell becomes, as for `guerdon.reward`.
        max_failure_rate: As for `guerdon.reward`.
        run_if: As for `guerdon.reward`.
        otherwise: As for `guerdon.reward`.
        pure: As for `guerdon.reward`: programs that are the same are run once.
        cache: As for `guerdon.reward`.
        cache_version: As for `guerdon.reward`.

    Returns: A `CodeReward`, for a dispatcher's list, or as it is for a trainer.

    Raises:
        RegistrationError: An option is wrong, or this machine lacks what ``isolation="strict"``
            needs (not asked for with ``remote``).

    Examples:
        >>> adds = code_reward(isolation="none", timeout=5)
        >>> answer = "```python\\nprint(int(input()) + 1)\\n```"
        >>> adds(completions=[answer], cases=[[{"stdin": "1", "stdout": "2"}]])
        [1.0]
        >>> adds.close()
    """
    given = dict(locals())
    name = checked.label("code", "name", name) or "code"
    options = Options(
        name=name,
        total_timeout=total_timeout,
        setup_timeout=setup_timeout,
        retries=retries or 0,
        limit=limit,
        on_failure=on_failure,
        max_failure_rate=max_failure_rate,
    )
    if remote is None:
        made = language_of(name, language, command, compile)
    elif isinstance(remote, SandboxFusion):
        made = remote_language(name, language, remote)
    else:
        raise wrong(name, "remote", remote, "a guerdon.SandboxFusion")
    rules = JudgingRules(
        timeout=_seconds(name, "timeout", timeout),
        case_timeout=None if case_timeout is None else _seconds(name, "case_timeout", case_timeout),
        compare=_called(name, "compare", compare) if callable(compare) else _one_of(name, "compare", compare, RULES),
        score=_one_of(name, "score", score, ("all", "share")),
        max_output=_size(name, "max_output", max_output, 1),
        language=made,
        takes_input=callable(compare) and _takes_input(name, compare),
    )
    if made.command and check is not None:
        raise wrong(name, "check", check, "cases: only the functions of Python programs can be called")
    if callable(extract):
        _called(name, "extract", extract)
    else:
        _one_of(name, "extract", extract, ("last", "first", "whole"))
    given_modules: object = modules
    if not isinstance(given_modules, (list, tuple)) or not all(one and isinstance(one, str) for one in given_modules):
        raise wrong(name, "modules", modules, "names of modules, as in modules=['numpy']")
    spec = FenceSpec(
        isolation=_one_of(name, "isolation", isolation, ("strict", "none")),
        memory_limit=max(_size(name, "memory_limit", memory_limit, _LEAST_MEMORY), made.least_memory),
        cpu_seconds=int(max(rules.timeout, COMPILE_S if made.compile else 0)) + 2,
        processes=bool(made.compile) or made.starts_processes,
        execute=bool(made.command),
        readable=made.readable,
        modules=tuple(modules),
        module_folders=folders_of(tuple(modules)),
    )
    columns, wants = _columns(name, cases, check, entry_point, prelude)
    kept, is_pure = checked_cache(name, cache, cache_version, pure=checked.flag_or_none(name, "pure", pure))
    when = checked_run_if(name, run_if, otherwise)
    factory = Factory(code_reward, given, _options_of(columns))
    if remote is not None:
        how = (rules, spec, columns, wants, extract)
        return remote_reward(factory, options, remote, *how, run_if=when, pure=bool(is_pure), cache=kept)
    if isolation == "strict" and (open_to_all := holding(os.getcwd(), spec.readable)) is not None:
        raise RegistrationError(
            f"code_reward {name!r}: the working folder {os.getcwd()!r} lies in {open_to_all!r}, which programs may read, with all that is "
            "in it. Work in another folder, or have the interpreter in one of its own (python -m venv)."
        )
    level = probe(spec)
    if made.command and isolation == "strict" and "folder" not in dict(level.held):
        raise RegistrationError(
            f"code_reward {name!r}: language={language!r} needs a folder for the program's files, which programs don't have here: "
            f'{dict(level.missing).get("folder", "unknown")}. Allow user name spaces, or say isolation="none" for programs that you trust.'
        )
    if isolation == "none":
        logging.getLogger("guerdon").warning(
            '%s: isolation="none": programs run with the rights of this user, and can do all that it can', name
        )
    judging = Judging(columns, rules, spec, extract, made.tags, check if callable(check) else None, level)
    judge = Judge(judging)
    function = FunctionSpec(
        name=name,
        item=judge,
        target=judge,
        lane="code",
        shape="sample",
        policy=replace(
            checked_policy(name, options, "sample"),
            timeout=2 * wall_seconds(rules.timeout)
            + _OVERHEAD_S
            + BESIDE_S
            + REFERENCE_S
            + _START_S * judging.has_functions
            + wall_seconds(COMPILE_S) * bool(made.compile),
        ),
        wants=wants,
        factory=factory,
        stateful=True,
        decorated=True,
        run_if=when,
        pure=bool(is_pure),
        cache=kept,
    )
    return CodeReward((code_reward, given), function, judge, level)


def _columns(name: str, cases: object, check: object, entry_point: object, prelude: object) -> tuple[Columns, Wants]:
    """The columns that are taken, and which of them a batch must have."""
    _column(name, "cases", cases)
    entry = _column(name, "entry_point", entry_point)
    before = None if prelude is None else _column(name, "prelude", prelude)
    required: list[str] = [COMPLETION]
    optional: list[str] = []
    row: list[str] = []
    if callable(check):
        _called(name, "check", check)
        try:
            signature = inspect.signature(check)
        except ValueError:  # of a builtin, whose parameters have no names
            raise wrong(name, "check", check, "a function with named parameters, the first the candidate") from None
        parameters = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        if not parameters:
            raise wrong(name, "check", check, "a function whose first parameter is the candidate")
        for one in parameters[1:]:
            (required if one.default is one.empty else optional).append(one.name)
            row.append(one.name)
        tests = taken = None
    elif check is None:
        tests, taken = None, str(cases)
        required.append(taken)
    else:
        tests, taken = _column(name, "check", check), None
        required.append(tests)
    if before is not None:
        required.append(before)
    optional.append(entry)
    wants = Wants(
        required=tuple(dict.fromkeys(required)),
        optional=tuple(one for one in dict.fromkeys(optional) if one not in required),
    )
    return Columns(taken, tests, entry, before, tuple(row)), wants


def _options_of(columns: Columns) -> dict[str, str]:
    """The options that name columns of the dataset, with those columns."""
    named = {"cases": columns.cases, "check": columns.tests, "prelude": columns.prelude}
    return {option: column for option, column in named.items() if column is not None}


def _column(name: str, option: str, value: object) -> str:
    if isinstance(value, str) and value in _NO_COLUMNS:
        raise wrong(
            name, option, value, f"a column of the dataset: {', '.join(_NO_COLUMNS)} are the trainer's and the model's"
        )
    if isinstance(value, str) and value:
        return value
    raise wrong(name, option, value, "the name of a column")


def _called(name: str, option: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, which is not a coroutine function: a coroutine that nobody waits for is
    true."""
    if any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))):  # noqa: B004
        raise wrong(name, option, function, "a plain function: no event loop runs here")
    return function


def _takes_input(name: str, compare: Callable[..., Any]) -> bool:
    """Returns whether it takes the input beside the expected and the actual value."""
    try:
        signature = inspect.signature(compare)
    except ValueError:  # of a builtin
        return False
    for count in (2, 3):
        with suppress(TypeError):
            signature.bind(*range(count))
            return count == 3
    raise wrong(name, "compare", compare, "a function of what was expected and what came, and of the input")


def _seconds(name: str, option: str, value: object) -> float:
    found: float = checked.seconds(name, option, value)
    if found > _LONGEST_S:
        raise wrong(name, option, value, f"at most {_LONGEST_S:.0e} s")
    return found


def _one_of(name: str, option: str, value: Any, known: Sequence[str]) -> Any:
    if value in known:
        return value
    raise wrong(name, option, value, f"one of {', '.join(map(repr, known))}")


def _size(name: str, option: str, value: object, least: int) -> int:
    size = as_bytes(value)
    if size is None or not least <= size <= _MOST_BYTES:
        raise wrong(name, option, value, f"{EXPECTED_BYTES}, at least {least} bytes")
    return size
