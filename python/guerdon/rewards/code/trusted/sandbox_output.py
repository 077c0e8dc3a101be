"""The verdict on a run in a sandbox elsewhere, by the rules for programs here."""

from __future__ import annotations

import json
from binascii import a2b_base64
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from guerdon.rewards.code.child.decoding import decode
from guerdon.rewards.code.child.encoding import EncodingError, Opaque
from guerdon.rewards.code.trusted.case_judge import CaseJudge, expects_list
from guerdon.rewards.code.trusted.cases import CallCase, Case
from guerdon.rewards.code.trusted.compare import shown
from guerdon.rewards.code.zygote.script_run import exit_fault, signal_name

__all__ = ["CaseRun", "SandboxRun", "fault_of_run"]

# Beginning of a sandbox's substitute for an output that is not UTF-8.
_UNDECODED: Final = "[DecodeError]"
# Lines around a value.
_ENVELOPE: Final = 1024


class SandboxRun(NamedTuple):
    """Result of a run.

    Attributes:
        end: ``"exit"``, ``"time limit"``, ``"not compiled"``, ``"compiler time limit"``, or ``"too
            long"`` for an answer that was too long to be read.
        seconds: By the sandbox's clock.
    """

    end: str
    status: int
    seconds: float
    stdout: str
    stderr: str


@dataclass(frozen=True)
class CaseRun:
    """A run of a case.

    Attributes:
        nonce: Of the call, before its value.
        limit: Seconds that it had.
    """

    case: Case
    run: SandboxRun
    nonce: str
    limit: float


def fault_of_run(judge: CaseJudge, case_run: CaseRun) -> str:
    """The fault of a run that does not pass its case; "" for one that does."""
    case, run = case_run.case, case_run.run
    calls, most = isinstance(case, CallCase), judge.rules.max_output
    # A value is as base64.
    if run.end == "too long" or _size(run.stdout) > (4 * most // 3 + _ENVELOPE if calls else most):
        return f"it printed more than {most} bytes"
    if run.end == "time limit":
        return f"{'no answer' if calls else 'it did not end'} within {case_run.limit:.2g} s"
    if isinstance(case, CallCase):
        return _fault_of_call(judge, case, run, case_run.nonce)
    return exit_fault(run.status, run.stderr) or judge.printed(case, run.stdout)


def _fault_of_call(judge: CaseJudge, case: CallCase, run: SandboxRun, nonce: str) -> str:
    lines = [line for line in run.stdout.split("\n") if line.startswith(nonce)] if run.status == 0 else []
    kind, _, text = lines[-1][len(nonce) :].strip().partition(" ") if lines else ("", "", "")
    if kind in ("value", "iterator") and text:
        try:
            value = decode(a2b_base64(text, strict_mode=True))
        except (EncodingError, ValueError) as error:
            return f"what it returned is no data: {error}"
        except MemoryError:
            return "what it returned takes too much memory"
        return judge.returned(case, _listed(case, value) if kind == "iterator" else value)
    if kind == "fault" and text:
        return _reported(text)
    if run.stdout.startswith(_UNDECODED):
        return f"it printed no text: {shown(run.stdout)}"
    how = f"by {signal_name(-run.status)}" if run.status < 0 else f"with exit status {run.status}"
    return f"its process ended {how}"


def _size(text: str) -> int:
    """Bytes of an output."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _listed(case: CallCase, value: Any) -> Any:
    """The list of an iterator where a list is expected; the iterator otherwise."""
    if not (isinstance(value, tuple) and list(map(type, value)) == [str, list]):
        return Opaque("object")  # the program wrote this itself
    opaque = Opaque(value[0])
    return value[1] if expects_list(case, opaque) else opaque


def _reported(text: str) -> str:
    """The fault that a process reports, or its program."""
    try:
        fault = json.loads(text)
    except (ValueError, RecursionError, MemoryError):
        fault = None
    return fault[:400] if isinstance(fault, str) and fault else "what it returned is no data"
