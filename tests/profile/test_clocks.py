"""The clocks of the check `clock`: at any minute, one of them shows what a function may ask for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from guerdon.profile.stand_in import CLOCKS

DAY = 86400
MIDNIGHT = 1_795_478_400
ASKED: dict[str, Callable[[datetime], object]] = {
    "parity of the day": lambda at: int(at.timestamp() // DAY % 2),
    "day of the month and hour": lambda at: (at.day, at.hour),
    "weekday": lambda at: at.weekday(),
    "month": lambda at: at.month,
}


@pytest.mark.parametrize("asked", ASKED)
def test_no_minute_hides_what_depends_on_the_time(asked: str) -> None:
    look = ASKED[asked]
    for minute in range(2 * 24 * 60):
        now = MIDNIGHT + 60 * minute
        shown = {look(datetime.fromtimestamp(now + ahead, UTC)) for ahead in (0.0, *CLOCKS.values())}
        assert len(shown) > 1, f"minute {minute}: every clock shows the same"
