"""The trainer's own requests to its vLLM server: TRL's client, with every request bounded and repeated alike.

- Q-1  Every request goes through `_ask`, TRL's whole list of them; only the wait for readiness is TRL's, which has its
       own bound.
- Q-2  A request that changes what the server holds and can't be told from its repetition is made once.
- Q-3  Weights go only to the server that the transfer group was made with.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Final

import requests
from trl.experimental.async_grpo.vllm_client import VLLMClient

from guerdon.errors import VLLMServerError
from guerdon.integrations.trl.async_grpo.vllm_calls import RESTARTED, Tries, Trouble, VLLMCalls, retry_after, started_at

_OK: Final = 200


class Client(VLLMClient):  # type: ignore[misc]  # trl is not typed
    """TRL's client with finite patience, the same for every request."""

    def __init__(self, server_url: str, server_timeout: float, calls: VLLMCalls) -> None:
        super().__init__(server_url, server_timeout)
        self.calls = calls
        self._joined: str | None = None  # the server that the NCCL group was made with

    def get_max_model_len(self) -> int:
        return int(self._ask("GET", "/v1/models").json()["data"][0]["max_model_len"])

    def get_server_info(self) -> dict[str, Any]:
        info: dict[str, Any] = self._ask("GET", "/server_info", params={"config_format": "json"}).json()["vllm_config"]
        return info

    def get_dtype(self) -> str:
        return str(self.get_server_info()["model_config"]["dtype"])

    def get_world_size(self) -> int:
        return int(self._ask("GET", "/get_world_size").json()["world_size"])

    def pause(self, timeout: float | None = None) -> None:
        self._ask("POST", "/pause", params={"mode": "keep"}, timeout=timeout)

    def resume(self, timeout: float | None = None) -> None:
        self._ask("POST", "/resume", timeout=timeout)

    def unfreeze(self) -> None:
        """Ends a pause that an error would leave behind, if the server is there; never an error itself."""
        with contextlib.suppress(requests.RequestException):
            requests.post(f"{self.server_url}/resume", timeout=min(10.0, self.calls.control_timeout))

    def load_lora_adapter(self, lora_name: str, lora_path: str, timeout: float | None = None) -> None:
        load_adapter(self, lora_name, lora_path, timeout)

    def unload_lora_adapter(self, lora_name: str, timeout: float | None = None) -> None:
        # A server that was started anew has forgotten it, which is what was asked for.
        self._ask("POST", "/v1/unload_lora_adapter", json={"lora_name": lora_name}, timeout=timeout, missing=True)

    def init_weight_transfer_engine(self, init_info: dict[str, Any], timeout: float | None = None) -> None:
        self._joined = self.identity()
        self._ask("POST", "/init_weight_transfer_engine", json={"init_info": init_info}, timeout=timeout, once=True)

    def start_weight_update(self, timeout: float | None = None) -> None:
        now = self.identity()
        if self._joined is not None and now is not None and now != self._joined:
            raise VLLMServerError(RESTARTED.format(url=self.server_url))
        self._ask("POST", "/start_weight_update", json={"is_checkpoint_format": True}, timeout=timeout, once=True)

    def update_weights(self, update_info: dict[str, Any], timeout: float | None = None) -> None:
        self._ask("POST", "/update_weights", json={"update_info": update_info}, timeout=timeout, once=True)

    def finish_weight_update(self, timeout: float | None = None) -> None:
        self._ask("POST", "/finish_weight_update", timeout=timeout, once=True)

    def identity(self) -> str | None:
        """What tells this server from another one at the same address; None if it doesn't say."""
        answer = self._ask("GET", "/metrics", missing=True)
        return started_at(answer.text) if answer.status_code == _OK else None

    def _ask(
        self,
        method: str,
        path: str,
        *,
        timeout: float | None = None,
        once: bool = False,
        missing: bool = False,
        **body: Any,
    ) -> requests.Response:
        """One request, repeated as `VLLMCalls` says (Q-1, Q-2).

        Args:
            missing: Whether 400 and 404 are answers like others.

        Raises:
            VLLMServerError: The server didn't do it.
        """
        url = f"{self.server_url}{path}"
        tries = Tries(self.calls, f"{method} {url}")
        seconds = self.calls.control_timeout if timeout is None else timeout
        while True:
            try:
                answer = requests.request(method, url, timeout=seconds, **body)
            except requests.Timeout as error:
                # A connection that isn't made in time is a server that is away.
                late = not isinstance(error, requests.ConnectTimeout)
                wait = tries.again(Trouble(_words(error, seconds), late=late), once=once)
            except requests.ConnectionError as error:
                wait = tries.again(Trouble(_words(error, seconds)), once=once and not _refused(error))
            else:
                if answer.status_code == _OK or (missing and answer.status_code in (400, 404)):
                    return answer
                what = f"{answer.status_code} {answer.reason}: {answer.text}"
                pause = retry_after(answer.headers)
                wait = tries.again(Trouble(what, status=answer.status_code, retry_after=pause), once=once)
            time.sleep(wait)


def load_adapter(client: Client, name: str, path: str, timeout: float | None) -> None:
    """Makes an adapter's files known to the server under `name`; one that it knows already is as good.

    Raises:
        VLLMServerError: The server can't, or won't.
    """
    body = {"lora_name": name, "lora_path": path, "load_inplace": False}
    answer = client._ask("POST", "/v1/load_lora_adapter", json=body, timeout=timeout, missing=True)
    problem = refusal(client.server_url, answer.status_code, answer.text)
    if problem is not None:
        raise VLLMServerError(problem)


def refusal(url: str, status: int, text: str) -> str | None:
    """What to say of the answer to a request to load an adapter; None if the server has the adapter."""
    if status == _OK or "already been loaded" in text:
        return None
    if status == 404 and '"Not Found"' in text:
        return (
            f"the vLLM server at {url} has no /v1/load_lora_adapter: start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in "
            "its environment, and --enable-lora."
        )
    return f"the vLLM server at {url} did not take an adapter: {status}: {' '.join(text.split())[:300]}"


def _words(error: Exception, seconds: float) -> str:
    if isinstance(error, requests.Timeout):
        return f"no answer in {seconds:g} s"
    return f"{type(error).__name__}: {error}"


def _refused(error: Exception) -> bool:
    """Whether the server never saw the request."""
    return "refused" in str(error).lower()
