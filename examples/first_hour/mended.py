"""The same functions, corrected: the whole completion counts; the slow one runs on threads."""

import time

from guerdon import reward


@reward
def correct(completion: str, answer: str) -> float:
    return float(completion.strip() == answer)


@reward(lane="thread")
def known(completion: str) -> float:
    time.sleep(0.03)  # waits for another service
    return float(completion.isdecimal())
