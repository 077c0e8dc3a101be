"""The trainer's own requests to its vLLM server: TRL's client, each request bounded and retried.

Every request but TRL's wait for readiness goes through `_request`. A request that changes the
server's state, and whose repetition can't be detected, is made once. Weights go only to the server
process that the NCCL transfer group was made with.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Final

import requests
from trl.experimental.async_grpo.vllm_client import VLLMClient

from guerdon.errors import VLLMServerError
from guerdon.integrations.trl.async_grpo.vllm_calls import (
    SERVER_RESTARTED,
    Attempts,
    FailedAttempt,
    VLLMCalls,
    process_start,
    retry_after,
)

_OK: Final = 200


class RetryingVLLMClient(VLLMClient):  # type: ignore[misc]  # trl is not typed
    """TRL's client, with the timeouts and retries of `VLLMCalls`."""

    def __init__(self, server_url: str, server_timeout: float, calls: VLLMCalls) -> None:
        super().__init__(server_url, server_timeout)
        self.calls = calls
        self._weights_receiver: str | None = None  # the server that the NCCL group was made with

    def get_max_model_len(self) -> int:
        return int(self._request("GET", "/v1/models").json()["data"][0]["max_model_len"])

    def get_server_info(self) -> dict[str, Any]:
        info: dict[str, Any] = self._request("GET", "/server_info", params={"config_format": "json"}).json()[
            "vllm_config"
        ]
        return info

    def get_dtype(self) -> str:
        return str(self.get_server_info()["model_config"]["dtype"])

    def get_world_size(self) -> int:
        return int(self._request("GET", "/get_world_size").json()["world_size"])

    def pause(self, timeout: float | None = None) -> None:
        self._request("POST", "/pause", params={"mode": "keep"}, timeout=timeout)

    def resume(self, timeout: float | None = None) -> None:
        self._request("POST", "/resume", timeout=timeout)

    def try_resume(self) -> None:
        """Ends a pause that an error left behind, if the server is there. Never raises."""
        with contextlib.suppress(requests.RequestException):
            requests.post(f"{self.server_url}/resume", timeout=min(10.0, self.calls.control_timeout))

    def load_lora_adapter(self, lora_name: str, lora_path: str, timeout: float | None = None) -> None:
        body = {"lora_name": lora_name, "lora_path": lora_path, "load_inplace": False}
        answer = self._request("POST", "/v1/load_lora_adapter", json=body, timeout=timeout, missing=True)
        problem = refusal(self.server_url, answer.status_code, answer.text)
        if problem is not None:
            raise VLLMServerError(problem)

    def unload_lora_adapter(self, lora_name: str, timeout: float | None = None) -> None:
        # A restarted server has no adapter to unload: that is not an error.
        self._request("POST", "/v1/unload_lora_adapter", json={"lora_name": lora_name}, timeout=timeout, missing=True)

    def init_weight_transfer_engine(self, init_info: dict[str, Any], timeout: float | None = None) -> None:
        self._weights_receiver = self.identity()
        self._request("POST", "/init_weight_transfer_engine", json={"init_info": init_info}, timeout=timeout, once=True)

    def start_weight_update(self, timeout: float | None = None) -> None:
        now = self.identity()
        if self._weights_receiver is not None and now is not None and now != self._weights_receiver:
            raise VLLMServerError(SERVER_RESTARTED.format(url=self.server_url))
        self._request("POST", "/start_weight_update", json={"is_checkpoint_format": True}, timeout=timeout, once=True)

    def update_weights(self, update_info: dict[str, Any], timeout: float | None = None) -> None:
        self._request("POST", "/update_weights", json={"update_info": update_info}, timeout=timeout, once=True)

    def finish_weight_update(self, timeout: float | None = None) -> None:
        self._request("POST", "/finish_weight_update", timeout=timeout, once=True)

    def identity(self) -> str | None:
        """Returns an identity that differs between server processes at the same address; None if
        unknown."""
        answer = self._request("GET", "/metrics", missing=True)
        return process_start(answer.text) if answer.status_code == _OK else None

    def _request(
        self,
        method: str,
        path: str,
        *,
        timeout: float | None = None,
        once: bool = False,
        missing: bool = False,
        **body: Any,
    ) -> requests.Response:
        """One request, retried as `VLLMCalls` says.

        Args:
            once: Whether it must not be repeated once the server may have seen it.
            missing: Whether the answers 400 and 404 are returned.

        Raises:
            VLLMServerError: No attempt succeeded.
        """
        url = f"{self.server_url}{path}"
        attempts = Attempts(self.calls, f"{method} {url}")
        seconds = self.calls.control_timeout if timeout is None else timeout
        while True:
            try:
                answer = requests.request(method, url, timeout=seconds, **body)
            except requests.Timeout as error:
                # A connection that isn't made in time is a server that is away.
                late = not isinstance(error, requests.ConnectTimeout)
                wait = attempts.next_wait(FailedAttempt(_describe(error, seconds), late=late), once=once)
            except requests.ConnectionError as error:
                wait = attempts.next_wait(
                    FailedAttempt(_describe(error, seconds)), once=once and not _connection_refused(error)
                )
            else:
                if answer.status_code == _OK or (missing and answer.status_code in (400, 404)):
                    return answer
                what = f"{answer.status_code} {answer.reason}: {answer.text}"
                pause = retry_after(answer.headers)
                wait = attempts.next_wait(FailedAttempt(what, status=answer.status_code, retry_after=pause), once=once)
            time.sleep(wait)


def refusal(url: str, status: int, text: str) -> str | None:
    """The error message for an answer to loading an adapter; None if the server has it now."""
    if status == _OK or "already been loaded" in text:
        return None
    if status == 404 and '"Not Found"' in text:
        return (
            f"the vLLM server at {url} has no /v1/load_lora_adapter: start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in "
            "its environment, and --enable-lora."
        )
    return f"the vLLM server at {url} did not load an adapter: {status}: {' '.join(text.split())[:300]}"


def _describe(error: Exception, seconds: float) -> str:
    if isinstance(error, requests.Timeout):
        return f"no answer in {seconds:g} s"
    return f"{type(error).__name__}: {error}"


def _connection_refused(error: Exception) -> bool:
    """Returns whether the server never saw the request."""
    return "refused" in str(error).lower()
