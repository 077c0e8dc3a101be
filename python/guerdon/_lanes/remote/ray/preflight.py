"""Starting and checking agents, all at once: who can work, and why others can't.

A node that is lost meanwhile is not the user's mistake: the others start without it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from guerdon._lanes.remote.ray import versions
from guerdon._lanes.remote.ray.reasons import is_gone, is_refusal, reason_of

if TYPE_CHECKING:
    from guerdon._lanes.remote.ray.node import Node

__all__ = ["PreflightResult", "source", "started"]


class PreflightResult(NamedTuple):
    """Results of the check of nodes that were to begin: those that can work, and why others can't,
    by name.

    Attributes:
        ready: They began a session.
        wrong: The functions can't run there.
        failed: They did not answer in time, or Ray failed: it may pass.
        lost: The node is gone, or its agent.
    """

    ready: list[Node]
    wrong: dict[str, str]
    failed: dict[str, str]
    lost: dict[str, str]

    def reasons(self) -> str:
        """A line for each node that is not ready."""
        reasons = {**self.lost, **self.failed, **self.wrong}
        return "\n".join(f"  node {name}: {why}" for name, why in sorted(reasons.items()))


def source() -> str:
    """The text of `versions`, which runs on nodes before anything of guerdon is imported."""
    return Path(versions.__file__).read_text(encoding="utf-8")


def started(nodes: list[Node], timeout: float, patience: float) -> PreflightResult:
    """Begins sessions with `nodes`; if one of them is wrong, then with none.

    Args:
        nodes: New ones.
        timeout: Seconds until their agents answer.
        patience: Seconds that the check of the functions may take.
    """
    here, text = versions.installed(), source()
    found = PreflightResult([], {}, {}, {})
    alive = []
    for node, (answer, error) in _answers({node: node.versions(text) for node in nodes}, timeout).items():
        if error is not None:
            _sort(
                found,
                node,
                error,
                f"no agent answered within {timeout:g} s: Ray could not reserve {node.cpus} of its {node.place.cpus:g} CPUs, or "
                "start a process (its logs tell). Give cpus_per_node= less, or start_timeout= more",
            )
        elif clauses := versions.differences(here, answer):
            found.wrong[node.place.name] = "; ".join(clauses)
        else:
            alive.append(node)
    if found.wrong or found.failed:
        return found
    for node, (_, error) in _answers({node: node.open() for node in alive}, patience).items():
        if error is None:
            found.ready.append(node)
        else:
            _sort(found, node, error, f"the functions were not ready within {patience:g} s")
    return found


def _sort(found: PreflightResult, node: Node, error: BaseException, late: str) -> None:
    """Puts the reason where it belongs; `late` is that of one that did not answer."""
    if type(error).__name__ == "GetTimeoutError":
        where, why = found.failed, late
    elif is_refusal(error):
        where, why = found.wrong, reason_of(error)
    else:
        # The list of nodes may be some seconds late.
        where, why = found.lost if is_gone(error) else found.failed, reason_of(error)
    where[node.place.name] = why


def _answers(asked: dict[Node, Any], timeout: float) -> dict[Node, tuple[Any, BaseException | None]]:
    """Returns for each node its answer, or the reason for a missing answer."""
    import ray

    deadline = time.monotonic() + timeout
    found: dict[Node, tuple[Any, BaseException | None]] = {}
    for node, reference in asked.items():
        try:
            found[node] = ray.get(reference, timeout=max(0.0, deadline - time.monotonic())), None
        except Exception as error:
            found[node] = None, error
    return found
