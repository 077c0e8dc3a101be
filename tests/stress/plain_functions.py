"""Reward functions of a module that imports nothing."""


def look_or_fail(completion: str) -> dict[str, object]:
    import sys

    if completion == "fail":
        raise ValueError
    return {"score": 1.0, "modules": " ".join(sorted(sys.modules))}


def number_of(value: object) -> float:
    return float(value.number)  # type: ignore[attr-defined]
