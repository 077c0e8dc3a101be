"""The best possible time of a step of each mode, from the separate times of generation, training
and rewards.

Times for generation G, training T and rewards R are: off G+T+R; one step ahead max(G+T, (R+G+T)/2);
mini-batches G plus the end of training in the order in which the groups complete; both max(G+T,
(R+G+T/s)/2), for s mini-batches.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["bound", "trained_at"]


def trained_at(groups: Sequence[float], training: float, pieces: int) -> float:
    """Seconds from the first reward's start to the end of training, piece by piece in the order in
    which groups complete.

    Args:
        groups: When each group is complete, seconds.
        training: Seconds for all pieces.
        pieces: Mini-batches, of equally many groups.
    """
    ordered = sorted(groups)
    end = 0.0
    for piece in range(1, pieces + 1):
        complete = ordered[-(-len(ordered) * piece // pieces) - 1]
        end = max(end, complete) + training / pieces
    return end


def bound(mode: str, generation: float, training: float, batches: Sequence[Sequence[float]], pieces: int) -> float:
    """Seconds of a step, the mean over batches.

    Args:
        batches: For each batch, when each of its groups was complete, seconds from its first
            reward's start.
    """

    def of(groups: Sequence[float]) -> float:
        rewards = max(groups)
        if mode == "mini_batch":
            return generation + trained_at(groups, training, pieces)
        if mode == "one_step":
            return max(generation + training, (rewards + generation + training) / 2)
        if mode == "both":
            return max(generation + training, (rewards + generation + training / pieces) / 2)
        return generation + training + rewards

    return sum(map(of, batches)) / len(batches)
