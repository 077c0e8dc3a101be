"""Which digit comes next? Two reward functions, each with a fault that is easy to miss."""

import time

from guerdon import reward


@reward
def correct(completion: str, answer: str) -> float:
    return float(answer in completion)


@reward
def known(completion: str) -> float:
    time.sleep(0.03)  # waits for another service
    return float(completion.isdecimal())
