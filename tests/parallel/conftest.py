"""Tests of parallel training, which `make test-parallel` runs in an environment of its own;
elsewhere they are not collected."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("deepspeed") else ["*"]
