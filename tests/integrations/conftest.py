"""Set before any test module imports the libraries that read it."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is looked up or reported
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # else a thread that stays
