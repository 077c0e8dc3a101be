"""All that a program under test must not be able to do: what the product tries when a reward is
made, and a hundred acts more, each really tried.

- An act that returns has succeeded; one that raises was refused.
- An act harms nothing where it succeeds: signal 0, files opened and never written to, files of its
  own made and removed, system calls with arguments that no kernel takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from guerdon.rewards.code.zygote import acts, fence_probe
from guerdon.rewards.code.zygote.acts import Act
from guerdon.rewards.code.zygote.fence import FenceSpec
from guerdon.rewards.code.zygote.fence_probe import FenceTrial
from tests.code.acts.act import Targets, more_targets
from tests.code.acts.files import FILES
from tests.code.acts.kernel import KERNEL
from tests.code.acts.processes import PROCESSES
from tests.code.acts.resources import RESOURCES
from tests.code.acts.sockets import SOCKETS

__all__ = ["ACTS", "attempts", "install", "succeeded"]

ACTS: tuple[Act, ...] = (*acts.ACTS, *FILES, *PROCESSES, *SOCKETS, *KERNEL, *RESOURCES)
_ROOT: Final = str(Path(__file__).parents[3])


def attempts(spec: FenceSpec, setup: str = "") -> FenceTrial:
    """Try all of them, as the product tries its own."""
    install = (
        f"import sys; sys.path.append({_ROOT!r}); import tests.code.acts; sys.path.pop(); tests.code.acts.install()"
    )
    return fence_probe.attempts(spec, f"{install}\n{setup}")


def succeeded(found: FenceTrial) -> list[str]:
    """The names of acts that were not refused."""
    return [act.name for act in found.acts if act.outcome == "succeeded"]


def install() -> None:
    """Has the probe, in whose process this runs, try these."""
    its_own = fence_probe._targets

    @contextlib.contextmanager
    def targets(spec: FenceSpec) -> Iterator[Targets]:
        with its_own(spec) as given, more_targets(given) as more:
            yield more

    fence_probe.ACTS = ACTS  # type: ignore[misc]
    fence_probe._targets = targets
