"""Tests that `make test-trl-versions` runs with each TRL; elsewhere they are not collected."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "TRL_VERSION" in os.environ else ["*"]
