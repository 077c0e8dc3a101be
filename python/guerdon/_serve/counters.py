"""Counters of the server itself, as metrics beside those of the engine."""

from __future__ import annotations

from collections import Counter
from typing import Final

from guerdon._serve.permits import Permits

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

OTHER: Final = "other"
"""Stands for all paths that no protocol has."""


class Counters:
    """The counters of one server; all of it on one event loop."""

    def __init__(self, permits: Permits) -> None:
        self._permits = permits
        self._answers: Counter[tuple[str, str]] = Counter()

    def count(self, path: str, answer: str) -> None:
        """An answer: its status, or ``gone`` where the client had left."""
        self._answers[path, answer] += 1

    def text(self) -> str:
        """All of it, for Prometheus."""
        lines = [
            "# HELP guerdon_serve_requests_total Requests that were answered, by path and status.",
            "# TYPE guerdon_serve_requests_total counter",
            *(
                f'guerdon_serve_requests_total{{path="{path}",status="{answer}"}} {count}'
                for (path, answer), count in sorted(self._answers.items())
            ),
            "# HELP guerdon_serve_samples_in_flight Samples that were taken in and have no outcome yet.",
            "# TYPE guerdon_serve_samples_in_flight gauge",
            f"guerdon_serve_samples_in_flight {self._permits.samples}",
            "# HELP guerdon_serve_body_bytes Bytes of bodies in memory.",
            "# TYPE guerdon_serve_body_bytes gauge",
            f"guerdon_serve_body_bytes {self._permits.bytes}",
        ]
        return "\n".join(lines) + "\n"
