"""The rollout loop's requests to the vLLM server, on its event loop.

- H-1  A request is repeated as `VLLMCalls` says, and made anew each time: it names the policy of now, not of its first
       try.
- H-2  After the server was away nothing is asked of it before it is known to be the same one, or to have what it needs.
- H-3  A server that lost the policy's adapter is given it again, once for all requests that miss it.
- H-4  Without adapters, a server that was started anew has other weights than the policy: that ends the run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Final

import aiohttp

from guerdon.errors import VLLMServerError
from guerdon.integrations.trl.async_grpo.vllm_calls import (
    AWAY,
    RESTARTED,
    Tries,
    Trouble,
    VLLMCalls,
    retry_after,
    started_at,
)
from guerdon.integrations.trl.async_grpo.vllm_client import refusal

_OK: Final = 200
_MISSING: Final = 404
# The server was there and the connection broke, with the request in its hands or on the way there.
_CUT: Final = (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, aiohttp.ClientOSError, ConnectionResetError)


class Completions:
    """One vLLM server, as the rollout loop meets it.

    Args:
        url: Of the server.
        calls: How patient to be.
        adapters: Folder with one folder an adapter, named as the server is to know it; None where the policy's weights
            reach the server by NCCL.
        count: Told of each thing that went wrong, by the name of a counter.
    """

    def __init__(self, url: str, calls: VLLMCalls, adapters: str | None, count: Callable[[str], None]) -> None:
        self.url = url
        self._calls = calls
        self._adapters = adapters
        self._count = count
        self._identity: str | None = None
        self._suspect = True  # whether it may be another server than the one last looked at; written by all requests
        self._looking = asyncio.Lock()
        self._publishing = asyncio.Lock()

    async def post(
        self, session: aiohttp.ClientSession, path: str, payload: Callable[[], dict[str, Any]], timeout: float
    ) -> dict[str, Any]:
        """What the server answers, once it does.

        Args:
            payload: Makes the request's body, for each try.
            timeout: Seconds for one try.

        Raises:
            VLLMServerError: It can't, or not in the time and tries that there are.
        """
        url = f"{self.url}{path}"
        tries = Tries(self._calls, f"POST {url}")
        limit = aiohttp.ClientTimeout(total=timeout)
        while True:
            body = payload()
            try:
                trouble = await self.look(session) if self._suspect else None
                if trouble is None:
                    async with session.post(url, json=body, timeout=limit) as response:
                        if response.status == _OK:
                            answer: dict[str, Any] = await response.json()
                            return answer
                        trouble = await _said(response)
                if (
                    trouble.status == _MISSING
                    and self._adapters is not None
                    and await self._publish(session, body["model"])
                ):
                    self._count("rollout/adapter_republished_total")
                    trouble = Trouble(trouble.what, status=500, retry_after=0.0)  # counted, and asked again at once
                self._suspect |= trouble.away
                wait = tries.again(trouble)
            except aiohttp.ClientConnectorError as error:  # among `_CUT`, but the request never left
                wait = tries.again(self._lost(error))
            except _CUT as error:
                wait = tries.cut(self._lost(error).what)
            except (TimeoutError, asyncio.TimeoutError):
                wait = tries.again(Trouble(f"no answer in {timeout:g} s", late=True))
            except (aiohttp.ClientError, ValueError) as error:  # an answer that isn't one
                wait = tries.again(Trouble(f"{type(error).__name__}: {error}", status=500))
            self._count("rollout/vllm_retry_total")
            await asyncio.sleep(wait)

    async def look(self, session: aiohttp.ClientSession) -> Trouble | None:
        """Asks the server whether it is there and which one it is (H-2, H-4); what a proxy says in its place, if one does.

        Raises:
            VLLMServerError: It is another one, and can't be given the policy.
            aiohttp.ClientError: It isn't there.
        """
        async with self._looking:
            limit = aiohttp.ClientTimeout(total=self._calls.control_timeout)
            async with session.get(f"{self.url}/metrics", timeout=limit) as response:
                if response.status in AWAY:
                    return await _said(response)
                now = started_at(await response.text()) if response.status == _OK else None
            before, self._identity = self._identity, now or self._identity
            if before is not None and now is not None and now != before:
                self._count("rollout/vllm_restarted_total")
                if self._adapters is None:
                    raise VLLMServerError(RESTARTED.format(url=self.url))
            self._suspect = False
            return None

    async def _publish(self, session: aiohttp.ClientSession, name: str) -> bool:
        """Gives the server the adapter `name` again; whether it has it now (H-3).

        Raises:
            VLLMServerError: It has no way to take one.
        """
        path = os.path.join(self._adapters or "", name)
        async with self._publishing:
            # Removed by the trainer, once nothing asks for it any more: the next try names a later one. To vLLM, a path
            # that isn't there is the name of a model to download.
            if not await asyncio.to_thread(os.path.isdir, path):
                return False
            limit = aiohttp.ClientTimeout(total=self._calls.control_timeout)
            body = {"lora_name": name, "lora_path": path, "load_inplace": False}
            async with session.post(f"{self.url}/v1/load_lora_adapter", json=body, timeout=limit) as response:
                problem = refusal(self.url, response.status, await response.text())
        if problem is not None:
            raise VLLMServerError(problem)
        return True

    def _lost(self, error: Exception) -> Trouble:
        self._suspect = True
        return Trouble(f"{type(error).__name__}: {error}")


async def _said(response: aiohttp.ClientResponse) -> Trouble:
    """An answer that is none."""
    text = f"{response.status} {response.reason}: {await response.text()}"
    return Trouble(text, status=response.status, retry_after=retry_after(response.headers))
