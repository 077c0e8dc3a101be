"""math_verify with sane options. Where it is missing, there is nothing to audit."""

from __future__ import annotations

import importlib.util

from guerdon import reward
from tests.profile.planted.corpus import robust
from tests.profile.planted.rows import LATEX

if importlib.util.find_spec("math_verify") is not None:
    import math_verify

    FORM = math_verify.LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)

    @robust(LATEX)
    @reward
    def verified(text: str, solution: str) -> float | None:
        """The box alone, with bounds of its own."""
        wanted = math_verify.parse(solution, extraction_config=[FORM], parsing_timeout=2)
        if not wanted:
            return None
        if text.count("\\boxed{") != 1 or len(text) > 20_000:
            return 0.0
        given = math_verify.parse(text, extraction_config=[FORM], extraction_mode="first_match", parsing_timeout=2)
        return float(math_verify.verify(wanted, given, timeout_seconds=2))
