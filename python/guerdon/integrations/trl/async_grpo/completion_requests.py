"""The rollout loop's requests to the vLLM server, on its event loop.

A request is retried as `VLLMCalls` says, its body made anew: it names the policy of now. After the
server was unreachable, nothing is asked of it before its identity is checked. One that lost the
policy's adapter is given it again, once for all requests. If there are no adapters, a restarted
server has other weights than the policy: that ends the run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Final

import aiohttp

from guerdon.errors import VLLMServerError
from guerdon.integrations.trl.async_grpo.vllm_calls import (
    SERVER_RESTARTED,
    UNREACHABLE,
    Attempts,
    FailedAttempt,
    VLLMCalls,
    process_start,
    retry_after,
)
from guerdon.integrations.trl.async_grpo.vllm_client import refusal

_OK: Final = 200
_MISSING: Final = 404
# The connection broke while the server had the request, or on the way there.
_CONNECTION_LOST: Final = (
    aiohttp.ServerDisconnectedError,
    aiohttp.ClientPayloadError,
    aiohttp.ClientOSError,
    ConnectionResetError,
)


class CompletionRequests:
    """The completions of one vLLM server.

    Args:
        url: Of the server.
        calls: Timeouts and retries.
        adapters: Folder with one folder an adapter, of the name that the server knows; None where
            the policy's weights reach the server by NCCL.
        count: Adds one to the counter of a name.
    """

    def __init__(self, url: str, calls: VLLMCalls, adapters: str | None, count: Callable[[str], None]) -> None:
        self.url = url
        self._calls = calls
        self._adapters = adapters
        self._count = count
        self._identity: str | None = None
        self._unverified = True  # it may be another server than the last one; set by all requests
        self._verifying = asyncio.Lock()
        self._publishing = asyncio.Lock()

    async def post(
        self, session: aiohttp.ClientSession, path: str, payload: Callable[[], dict[str, Any]], timeout: float
    ) -> dict[str, Any]:
        """The server's answer.

        Args:
            payload: Makes the request's body, for each attempt.
            timeout: Seconds for one attempt.

        Raises:
            VLLMServerError: Retries are exhausted, or the answer is final.
        """
        url = f"{self.url}{path}"
        attempts = Attempts(self._calls, f"POST {url}")
        limit = aiohttp.ClientTimeout(total=timeout)
        while True:
            body = payload()
            try:
                failed = await self.verify(session) if self._unverified else None
                if failed is None:
                    async with session.post(url, json=body, timeout=limit) as response:
                        if response.status == _OK:
                            answer: dict[str, Any] = await response.json()
                            return answer
                        failed = await _failed_attempt(response)
                if (
                    failed.status == _MISSING
                    and self._adapters is not None
                    and await self._publish(session, body["model"])
                ):
                    self._count("rollout/adapter_republished_total")
                    # Counted as an attempt, and retried at once.
                    failed = FailedAttempt(failed.what, status=500, retry_after=0.0)
                self._unverified |= failed.unreachable
                wait = attempts.next_wait(failed)
            except aiohttp.ClientConnectorError as error:  # the request never left
                wait = attempts.next_wait(self._lost(error))
            except _CONNECTION_LOST as error:
                wait = attempts.connection_lost(self._lost(error).what)
            except TimeoutError:
                wait = attempts.next_wait(FailedAttempt(f"no answer in {timeout:g} s", late=True))
            except (aiohttp.ClientError, ValueError) as error:  # no valid answer
                wait = attempts.next_wait(FailedAttempt(f"{type(error).__name__}: {error}", status=500))
            self._count("rollout/vllm_retry_total")
            await asyncio.sleep(wait)

    async def verify(self, session: aiohttp.ClientSession) -> FailedAttempt | None:
        """Asks the server which process it is; the answer of a proxy in its place, if one answers.

        Raises:
            VLLMServerError: It is another process, which can't get the policy's weights.
            aiohttp.ClientError: It can't be reached.
        """
        async with self._verifying:
            limit = aiohttp.ClientTimeout(total=self._calls.control_timeout)
            async with session.get(f"{self.url}/metrics", timeout=limit) as response:
                if response.status in UNREACHABLE:
                    return await _failed_attempt(response)
                now = process_start(await response.text()) if response.status == _OK else None
            before, self._identity = self._identity, now or self._identity
            if before is not None and now is not None and now != before:
                self._count("rollout/vllm_restarted_total")
                if self._adapters is None:
                    raise VLLMServerError(SERVER_RESTARTED.format(url=self.url))
            self._unverified = False
            return None

    async def _publish(self, session: aiohttp.ClientSession, name: str) -> bool:
        """Loads the adapter `name` on the server again; whether it has it now.

        Raises:
            VLLMServerError: The server can't load adapters.
        """
        path = os.path.join(self._adapters or "", name)
        async with self._publishing:
            # The trainer removes folders that no request names any more: the next attempt names a
            # later one. vLLM takes a missing path for the name of a model to download.
            if not await asyncio.to_thread(os.path.isdir, path):
                return False
            limit = aiohttp.ClientTimeout(total=self._calls.control_timeout)
            body = {"lora_name": name, "lora_path": path, "load_inplace": False}
            async with session.post(f"{self.url}/v1/load_lora_adapter", json=body, timeout=limit) as response:
                problem = refusal(self.url, response.status, await response.text())
        if problem is not None:
            raise VLLMServerError(problem)
        return True

    def _lost(self, error: Exception) -> FailedAttempt:
        self._unverified = True
        return FailedAttempt(f"{type(error).__name__}: {error}")


async def _failed_attempt(response: aiohttp.ClientResponse) -> FailedAttempt:
    """The failed attempt behind an answer other than 200."""
    text = f"{response.status} {response.reason}: {await response.text()}"
    return FailedAttempt(text, status=response.status, retry_after=retry_after(response.headers))
