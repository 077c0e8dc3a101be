"""Versions that must agree between this process and an agent: Python, and the packages that
functions and messages depend on.

`installed` runs before anything of guerdon is imported there.
"""

from __future__ import annotations

__all__ = ["differences", "installed"]

Versions = dict[str, str]


def installed() -> Versions:
    """Versions of this interpreter; a package that can't be imported has the reason, in
    brackets."""
    import importlib
    import platform
    import sys

    found = {
        "Python": platform.python_version(),
        "implementation": sys.implementation.name,
        "executable": sys.executable,
    }
    for package in ("numpy", "cloudpickle", "guerdon"):
        try:
            found[package] = str(importlib.import_module(package).__version__)
        except Exception as error:
            found[package] = f"({type(error).__name__}: {error})"
    return found


def differences(here: Versions, there: Versions) -> list[str]:
    """Returns the differences that keep both from working together, each as a clause; empty when
    all is well."""
    executable, wrong = there["executable"], []
    if there["implementation"] != here["implementation"] or _parts(there, "Python", 2) != _parts(here, "Python", 2):
        wrong.append(
            f"{executable} is {there['implementation']} {there['Python']}, here it is {here['implementation']} {here['Python']}"
        )
    # Every version of guerdon has different messages; the others keep theirs within a major one.
    for package, parts in (("guerdon", 9), ("numpy", 1), ("cloudpickle", 1)):
        if there[package].startswith("("):
            wrong.append(f"{executable} can't import {package} {there[package]}")
        elif _parts(there, package, parts) != _parts(here, package, parts):
            wrong.append(f"it has {package} {there[package]}, here it is {here[package]}")
    return wrong


def _parts(versions: Versions, name: str, count: int) -> list[str]:
    return versions[name].split(".")[:count]
