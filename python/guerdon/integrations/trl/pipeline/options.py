"""`Pipeline`: the parts of a training step that go on at the same time.

A pipeline is a value: it names parts and changes nothing. Nothing here imports torch or trl.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from guerdon.errors import RegistrationError

MAX_LOOKAHEAD: Final = 16


@dataclass(frozen=True)
class Pipeline:
    """Work of a trainer while rewards are computed.

    Args:
        overlap: The rewards of a completion start as soon as it is finished, while others are still
            generated.
        mini_batch: Training starts on the groups whose rewards are complete, in the order in which
            they complete. Each group is trained on exactly once.
        lookahead: Batches generated ahead of the one in training, their scoring started: the
            staleness, in batches, of the policy that wrote it. 0 trains on-policy.

    Raises:
        RegistrationError: A value is none of these.

    Examples:
        >>> from guerdon.integrations.trl import Pipeline
        >>> Pipeline.of("one_step")
        Pipeline(overlap=False, mini_batch=False, lookahead=1)
    """

    overlap: bool = False
    mini_batch: bool = False
    lookahead: int = 0

    def __post_init__(self) -> None:
        for name in ("overlap", "mini_batch"):
            if not isinstance(getattr(self, name), bool):
                raise RegistrationError(f"Pipeline({name}={getattr(self, name)!r}): expected True or False.")
        ahead: object = self.lookahead
        if isinstance(ahead, bool) or not isinstance(ahead, int) or not 0 <= ahead <= MAX_LOOKAHEAD:
            raise RegistrationError(
                f"Pipeline(lookahead={ahead!r}): expected a whole number of batches, 0 to {MAX_LOOKAHEAD}. With each batch "
                "ahead, samples are one batch more off-policy when they are trained on."
            )

    @property
    def defers(self) -> bool:
        """Returns whether training may go on while rewards are missing."""
        return self.mini_batch or self.lookahead > 0

    @staticmethod
    def of(given: Pipeline | str | None) -> Pipeline:
        """The pipeline itself, or the preset of that name.

        Args:
            given: A pipeline, or ``"off"``, ``"overlap"``, ``"mini_batch"``, ``"one_step"`` or
                ``"all"``; None is off.

        Raises:
            RegistrationError: There is no such preset.
        """
        if isinstance(given, Pipeline):
            return given
        found = PRESETS.get("off" if given is None else str(given))
        if found is None:
            raise RegistrationError(
                f"pipeline={given!r}: expected a Pipeline or one of {', '.join(map(repr, PRESETS))}."
            )
        return found


PRESETS: Final = {
    "off": Pipeline(),
    "overlap": Pipeline(overlap=True),
    "mini_batch": Pipeline(mini_batch=True),
    "one_step": Pipeline(lookahead=1),
    "all": Pipeline(overlap=True, mini_batch=True, lookahead=1),
}
