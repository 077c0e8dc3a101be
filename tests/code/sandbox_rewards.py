"""Code rewards whose programs run in a sandbox that a test has started."""

from __future__ import annotations

from typing import Any

from guerdon import Dispatcher, SandboxFusion, code_reward
from tests.code.programs import block
from tests.http.server import Server


def remote(server: Server | str, **options: Any) -> Any:
    url = server if isinstance(server, str) else server.url
    given = {"timeout": 5.0, "max_failure_rate": 1.0, **options}
    return code_reward(remote=SandboxFusion(url, wait=given.pop("wait", 30.0)), **given)


def scored(code: Any, programs: list[str], **columns: Any) -> Any:
    with Dispatcher([code]) as dispatcher:
        return dispatcher.score(completions=[block(program) for program in programs], **columns)
