"""A judge with a real model behind it: transformers generation, served as OpenAI's chat API.

    python examples/model_judge.py FOLDER               # a model that save_pretrained wrote
    python examples/model_judge.py FOLDER --faults 0.02

It prints its address and ends with its stdin. Requests are answered greedily, one after another, so
that the same request always gets the same answer. `--faults` makes that share of the requests fail:
every second of them hangs for ever, the others are answered with 429.

`vllm_serving` serves a model with vLLM instead, on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

VLLM_READY_S = 300
VLLM_OPTIONS = "--dtype float32 --enforce-eager --max-model-len 512 --logprobs-mode processed_logprobs"
VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_SERVER_DEV_MODE": "1",  # its weights can be replaced
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process fewer
    "VLLM_NO_USAGE_STATS": "1",
    "TORCH_COMPILE_DISABLE": "1",
}


class Model:
    """Answers one request at a time."""

    def __init__(self, folder: str) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self._turn = threading.Lock()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        prompt = self._tokenizer.apply_chat_template(
            request["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with self._turn:
            written = self._model.generate(
                **prompt,
                max_new_tokens=request.get("max_tokens") or 64,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        asked = prompt["input_ids"].shape[1]
        tokens = written.sequences[0, asked:]
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": self._tokenizer.decode(tokens, skip_special_tokens=True)},
        }
        if request.get("logprobs"):
            count = request.get("top_logprobs") or 1
            choice["logprobs"] = {"content": [self._likely(logits[0], count) for logits in written.logits]}
        usage = {"prompt_tokens": asked, "completion_tokens": len(tokens), "total_tokens": asked + len(tokens)}
        named = {"id": "chatcmpl-0", "object": "chat.completion", "created": 0, "model": request["model"]}
        return {**named, "choices": [choice], "usage": usage}

    def _likely(self, logits: Any, count: int) -> dict[str, Any]:
        """The most likely tokens, and the first of them as the one that is written."""
        top = logits.log_softmax(-1).topk(count)
        tokens = [
            {"token": self._tokenizer.decode([token]), "logprob": logprob, "bytes": None}
            for logprob, token in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        ]
        return {**tokens[0], "top_logprobs": tokens}


class Faults:
    """Decides what becomes of a request: "" (nothing), "429" or "hang"."""

    def __init__(self, share: float) -> None:
        self._share, self._draw, self._kinds = share, random.Random(0), ["429", "hang"]
        self._turn = threading.Lock()

    def next(self) -> str:
        with self._turn:
            if self._draw.random() >= self._share:
                return ""
            self._kinds.reverse()
            return self._kinds[0]


def handler(model: Model, faults: Faults) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fault = faults.next()
            if fault == "hang":
                threading.Event().wait()
            elif fault:
                self._send(429, {"error": {"message": "too many requests"}})
            else:
                self._send(200, model.answer(request))

        def _send(self, status: int, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    return Handler


class Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that gave up is not an error of the server."""


@contextmanager
def serving(folder: Path, *, faults: float = 0.0) -> Iterator[str]:
    """Serves the model from another process; gives the address of its API."""
    command = [sys.executable, __file__, str(folder), "--faults", str(faults)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            if not address:
                raise RuntimeError("the judge did not start; its stderr says why")
            yield address
        finally:
            server.terminate()


@contextmanager
def vllm_serving(folder: Path, name: str, log: Path) -> Iterator[str]:
    """Serves the model with vLLM, whose output goes to `log`; gives the address of its API."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(folder),
        *VLLM_OPTIONS.split(),
    ]
    command += ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
    env = {**os.environ, **VLLM_ENVIRONMENT}
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=env) as server:
        try:
            deadline = time.monotonic() + VLLM_READY_S
            while not _answers(f"http://127.0.0.1:{port}/health"):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"vLLM did not start; {log} says why")
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def _answers(address: str) -> bool:
    try:
        return bool(urllib.request.urlopen(address, timeout=5).status == 200)
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--faults", type=float, default=0.0)
    options = parser.parse_args()
    server = Server(("127.0.0.1", 0), handler(Model(options.folder), Faults(options.faults)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
