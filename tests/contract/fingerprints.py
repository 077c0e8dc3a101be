"""Fingerprints of values, computed where a function runs; two values have the same only if they are
the same."""

from __future__ import annotations

import hashlib
from typing import Any


def fingerprint(value: object) -> float:
    """24 bits of a hash of every code point of every text, and of all that texts are nested in."""
    state = hashlib.sha256()
    _feed(state, value)
    return float(int.from_bytes(state.digest()[:3], "big"))


def _feed(state: Any, value: object) -> None:
    state.update(f"{type(value).__name__}:".encode())
    if isinstance(value, str):
        # UTF-8 keeps a pair of surrogates apart from the character that UTF-16 would make of it.
        state.update(f"{len(value)}:".encode() + value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, (list, tuple)):
        state.update(f"{len(value)}:".encode())
        for item in value:
            _feed(state, item)
    elif isinstance(value, dict):
        _feed(state, list(value.items()))
    else:
        state.update(repr(value).encode())


def of_prompt(prompt: object) -> float:
    return fingerprint(prompt)


def of_completion(completion: object) -> float:
    return fingerprint(completion)


def of_text(text: str) -> float:
    return fingerprint(text)


def of_answer(answer: object) -> float:
    return fingerprint(answer)


def of_all(prompt: object, completion: object, answer: object) -> float:
    return fingerprint([prompt, completion, answer])


def of_group(prompts: list[object], completions: list[object], answer: list[object]) -> list[float]:
    whole = of_lists(prompts, completions, answer)
    return [fingerprint([whole, index]) for index in range(len(completions))]


def of_lists(*lists: list[object]) -> float:
    """Returns the fingerprint of lists of values, in order."""
    return fingerprint([[fingerprint(value) for value in values] for values in lists])


def of_batch(prompts: list[object], completions: list[object], answer: list[object], **kwargs: Any) -> list[float]:
    return of_group(prompts, completions, answer)


def raises(text: str) -> float:
    raise ValueError(text)


def records(text: str, log_extra: Any) -> dict[str, object]:
    log_extra("seen", [text])
    return {"score": 1.0, "field": text}
