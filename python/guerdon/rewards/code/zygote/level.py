"""The level of isolation that held when everything forbidden was tried, as a value; or what to do.

- A missing layer narrows a level as long as another refuses the same acts; an act that succeeds is
  an error, never a weaker level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from guerdon.errors import RegistrationError

__all__ = ["LAYERS", "Attempt", "Level", "checked_level"]

_SHOWN: Final = 4
LAYERS: Final = {
    "landlock": "run on Linux 5.13 or newer with Landlock enabled (`landlock` among the names in "
    "/sys/kernel/security/lsm), in a container whose seccomp profile allows it, as Docker's and Kubernetes' do",
    "seccomp": "run on a kernel with seccomp filters",
    "limits": "let limits of resources be set",
    "user": "run as another user than root, or as root that may take another user (CAP_SETUID, CAP_SETGID)",
    "capabilities": "run as another user than root",
    "pid": "allow user name spaces",
    "namespaces": "allow user name spaces",
    "folder": "allow user name spaces",
    "oom": "let /proc/self/oom_score_adj be written",
}
"""Layers of the fences, each with what to do where it is missing."""


@dataclass(frozen=True)
class Attempt:
    """Outcome of an act: ``refused``, ``succeeded`` or ``missing`` (nothing to try it on)."""

    name: str
    layers: tuple[str, ...]
    outcome: str
    detail: str


@dataclass(frozen=True)
class Level:
    """The fences that hold here.

    Attributes:
        name: ``"strict"``, ``"none"``, or ``"remote"``: whatever the sandbox has.
        held: The layers that hold, each with what there is to say about it.
        missing: The others, with the reason.
        acts: How many forbidden acts were tried, all in vain.
    """

    name: str
    held: tuple[tuple[str, str], ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    acts: int = 0

    def __str__(self) -> str:
        if self.name == "remote":
            return "remote: whatever the sandbox has"
        if not self.held:
            return f"{self.name}: programs have the rights of this user"
        text = f"{self.name}: {', '.join(name for name, _ in self.held)}"
        if self.missing:
            text += f"; without {', '.join(f'{name} ({reason})' for name, reason in self.missing)}"
        return text


def checked_level(layers: Mapping[str, tuple[bool, str]], acts: Sequence[Attempt]) -> Level:
    """The level, if nothing forbidden succeeded.

    Raises:
        RegistrationError: Something did: what, which layers are missing, and what to do.
    """
    done = [act for act in acts if act.outcome == "succeeded"]
    if done:
        raise RegistrationError(_refusal(layers, done))
    return Level(
        "strict",
        tuple((name, text) for name, (holds, text) in layers.items() if holds),
        tuple((name, text) for name, (holds, text) in layers.items() if not holds),
        sum(act.outcome == "refused" for act in acts),
    )


def _refusal(layers: Mapping[str, tuple[bool, str]], done: Sequence[Attempt]) -> str:
    names = [act.name for act in done]
    if len(names) > _SHOWN + 1:
        names = [*names[:_SHOWN], f"{len(names) - _SHOWN} acts more"]
    could = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    refusing = dict.fromkeys(layer for act in done for layer in act.layers)
    missing = {name: text for name in refusing if name in layers for holds, text in [layers[name]] if not holds}
    text = f'code_reward: isolation="strict" does not hold here: a program can {could}.'
    if missing:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in missing.items())
        advice = "; or ".join(dict.fromkeys(LAYERS[name] for name in missing))
        text += f" Missing: {reasons}. Do one of these: {advice}."
    else:
        text += " All layers that should refuse this are there: please report it."
    return f'{text} isolation="none" runs programs with the rights of this user: only for programs that you trust.'
