"""Comparisons of completions that are numbers, and a judge that prefers the larger one."""

from __future__ import annotations

import re
from typing import Any

from guerdon import pairwise
from tests.http.server import Server, chat_completion, question


def numbers(body: dict[str, Any]) -> tuple[int, int]:
    one, other = map(int, re.findall(r"<(\d+)>", question(body)))
    return one, other


def fair(path: str, body: dict[str, Any]) -> Any:
    one, other = numbers(body)
    return chat_completion("[[A]]" if one > other else "[[B]]" if one < other else "[[C]]")


COMPARES: dict[str, Any] = {"prompt": "{prompt}: <{completion_a}> or <{completion_b}>?", "timeout": 20, "retries": 1}


def comparing(server: Server, **options: Any) -> Any:
    return pairwise(base_url=server.url, model="m", **{**COMPARES, **options})
