"""TRL's client of a vLLM server, with one request per completion, so that each is seen as it comes.

It gives what TRL's client gives for the same arguments: the completions of a prompt together,
prompts in order. Everything else is TRL's. Only the generating thread calls `on_complete`. An
interpreter that ends waits for no request: the server may take minutes, or never answer.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from queue import SimpleQueue
from typing import Any, Final

MAX_REQUESTS: Final = 256
"""Requests at a time: the sequences that a vLLM server runs at once by default."""


class SplitVLLMClient:
    """Replaces a trainer's ``vllm_client``.

    Args:
        seed: That of the run: requests that have no seed get one each, the same in every run.

    Attributes:
        on_complete: Called with rows of the batch and their token ids, as they are complete.
    """

    def __init__(self, client: Any, seed: int = 0) -> None:
        self._client = client
        _widen(getattr(client, "session", None))
        self._seeds = random.Random(seed)
        self.on_complete: Callable[[list[int], list[list[int]]], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def generate(self, prompts: Sequence[Any], *, features: Any = None, n: int = 1, **named: Any) -> dict[str, Any]:
        """Generates as TRL's client does, with a request for each completion, or for each prompt if
        too many."""
        on_complete = self.on_complete
        if on_complete is None or features is not None:
            answer: dict[str, Any] = self._client.generate(prompts=prompts, features=features, n=n, **named)
            return answer
        # If a seed is set, completions differ within a request, not between two requests.
        seeded = "seed" in (named.get("generation_kwargs") or {})
        each = n if seeded or len(prompts) * n > MAX_REQUESTS else 1
        jobs = [(prompt, self._seeds.getrandbits(31)) for prompt in prompts for _ in range(n // each)]

        def ask(job: tuple[Any, int]) -> Any:
            prompt, seed = job
            own = named
            if each < n:  # engines of one server that draw alike would give the same text twice
                own = {**named, "generation_kwargs": {**(named.get("generation_kwargs") or {}), "seed": seed}}
            return self._client.generate(prompts=[prompt], features=None, n=each, **own)

        answers: list[Any] = [None] * len(jobs)
        with contextlib.closing(_as_they_come(ask, jobs)) as coming:
            for index, one in coming:
                answers[index] = one
                on_complete(list(range(index * each, (index + 1) * each)), one["completion_ids"])
        return _merged(answers, n // each)


def _as_they_come(ask: Callable[[Any], Any], jobs: Sequence[Any]) -> Generator[tuple[int, Any]]:
    """The place of each job and what `ask` gives for it, at most `MAX_REQUESTS` at a time; once one
    has failed, or the caller leaves, no other begins.

    On daemon threads: those of an executor hold up the end of the interpreter.
    """
    waiting, ended = deque(enumerate(jobs)), SimpleQueue[tuple[int, Any, BaseException | None]]()

    def work() -> None:
        with contextlib.suppress(IndexError):  # another thread took the last one
            while True:
                index, job = waiting.popleft()
                try:
                    ended.put((index, ask(job), None))
                except BaseException as error:
                    ended.put((index, None, error))

    try:
        for number in range(min(MAX_REQUESTS, len(jobs))):
            threading.Thread(target=work, name=f"guerdon-vllm_{number}", daemon=True).start()
        for _ in jobs:
            index, answer, error = ended.get()
            if error is not None:
                raise error
            yield index, answer
    finally:
        waiting.clear()
        error = None  # its traceback holds this frame


def _widen(session: Any) -> None:
    """Lets a session of requests keep as many connections as requests run: else it opens and drops
    one for each request beyond its own number."""
    for prefix, adapter in dict(getattr(session, "adapters", {})).items():
        if getattr(adapter, "_pool_maxsize", MAX_REQUESTS) < MAX_REQUESTS:
            session.mount(prefix, type(adapter)(max_retries=adapter.max_retries, pool_maxsize=MAX_REQUESTS))


def _merged(answers: Sequence[dict[str, Any]], requests: int) -> dict[str, Any]:
    """One answer of several, of which `requests` in a row belong to the same prompt."""
    joined: dict[str, Any] = {"prompt_ids": [ids for answer in answers[::requests] for ids in answer["prompt_ids"]]}
    for name in answers[0]:
        if name != "prompt_ids":
            parts = [answer[name] for answer in answers]
            joined[name] = None if any(part is None for part in parts) else [one for part in parts for one in part]
    return joined
