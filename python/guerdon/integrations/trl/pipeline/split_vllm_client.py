"""TRL's client of a vLLM server, with its one request for a batch made into many, so that each answer is seen as it comes.

- V-1  It gives what TRL's client gives for the same arguments: the completions of a prompt together, prompts in order.
- V-2  Everything else is TRL's client's own.
- V-3  Only the thread that generates is told of completions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, Final

MOST_REQUESTS: Final = 256
"""Requests under way at a time: as many sequences as a vLLM server runs at once, if not told otherwise."""


class SplittingClient:
    """In the place of a trainer's ``vllm_client``.

    Attributes:
        tell: Called with rows of the batch and their token ids, as they are complete; None while nobody listens.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.tell: Callable[[list[int], list[list[int]]], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def generate(self, prompts: Sequence[Any], *, features: Any = None, n: int = 1, **named: Any) -> dict[str, Any]:
        """As TRL's client, with a request for each completion, or for each prompt where those would be too many."""
        tell = self.tell
        if tell is None or features is not None:
            answer: dict[str, Any] = self._client.generate(prompts=prompts, features=features, n=n, **named)
            return answer
        # A seed gives the completions of one request different numbers, those of two requests the same.
        seeded = "seed" in (named.get("generation_kwargs") or {})
        each = n if seeded or len(prompts) * n > MOST_REQUESTS else 1
        jobs = [prompt for prompt in prompts for _ in range(n // each)]
        executor = ThreadPoolExecutor(max_workers=min(MOST_REQUESTS, len(jobs)), thread_name_prefix="guerdon-vllm")
        try:
            places: dict[Future[Any], int] = {
                executor.submit(self._client.generate, prompts=[prompt], features=None, n=each, **named): place
                for place, prompt in enumerate(jobs)
            }
            answers: list[Any] = [None] * len(jobs)
            for done in as_completed(places):
                place = places[done]
                answers[place] = done.result()
                tell(list(range(place * each, (place + 1) * each)), answers[place]["completion_ids"])
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
        return _joined(answers, n // each)


def _joined(answers: Sequence[dict[str, Any]], requests: int) -> dict[str, Any]:
    """One answer of several, of which `requests` in a row belong to the same prompt (V-1)."""
    joined: dict[str, Any] = {"prompt_ids": [ids for answer in answers[::requests] for ids in answer["prompt_ids"]]}
    for name in answers[0]:
        if name != "prompt_ids":
            parts = [answer[name] for answer in answers]
            joined[name] = None if any(part is None for part in parts) else [one for part in parts for one in part]
    return joined
