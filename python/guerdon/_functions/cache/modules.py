"""Distinguishes the user's modules from installed ones, whose version counts.

Imports in a function's body are found in its code; nothing installed is imported for that.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib
import importlib.metadata
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from types import CodeType, ModuleType

__all__ = ["UnknownPart", "imported_in", "is_installed", "version_of_module"]


class UnknownPart(Exception):
    """A part of a function is neither code nor data; the message names it and its place."""


def is_installed(module: str | None) -> bool:
    """Returns whether a module is a package's or Python's own, rather than the user's."""
    top = (module or "").partition(".")[0]
    if top in ("guerdon", "builtins") or top in sys.stdlib_module_names:
        return True
    loaded = sys.modules.get(module or "")
    file = getattr(loaded, "__file__", None)
    if loaded is None or module == "__main__":
        return False
    if not isinstance(file, str):
        return not hasattr(loaded, "__path__") and getattr(loaded, "__spec__", None) is not None
    return _is_installed_file(file)


def version_of_module(module: str | None) -> str:
    """The name of an installed module and the version of the package that it is in."""
    return f"{module} {_version((module or '').partition('.')[0])}"


def imported_in(code: CodeType, package: str | None, place: str) -> Iterator[ModuleType | str]:
    """Yields the modules that a code and its inner functions import: the user's modules, and the
    versions of others.

    Raises:
        UnknownPart: A module of the user's can't be imported.
    """
    for level, name, wanted in _imports(code):
        try:
            full = importlib.util.resolve_name("." * level + name, package) if level else name
        except ImportError as error:
            raise UnknownPart(f"{place} imports {name!r}, which can't be found ({error})") from None
        if not _is_own(full):
            yield version_of_module(full)
            continue
        parents = full.split(".")
        try:
            for end in range(1, len(parents) + 1):
                yield importlib.import_module(".".join(parents[:end]))
            for attribute in wanted:
                if not hasattr(sys.modules[full], attribute):
                    importlib.import_module(f"{full}.{attribute}")
        except Exception as error:
            raise UnknownPart(f"{place} imports {full!r}, which fails ({error})") from None


def _imports(code: CodeType) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """The level, module and names of each import statement in a code."""
    before: list[object] = [0, None]
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            level, names = before
            wanted = tuple(str(name) for name in names) if isinstance(names, tuple) else ()
            yield level if isinstance(level, int) else 0, str(instruction.argval), wanted
        if instruction.opname != "EXTENDED_ARG":
            before = [before[1], instruction.argval]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imports(constant)


def _is_own(module: str) -> bool:
    """Decides as `is_installed` does for a loaded module; a missing module is not the user's."""
    top = module.partition(".")[0]
    if is_installed(top):
        return False
    for name in (module, top):
        if getattr(sys.modules.get(name), "__file__", None) is not None or name == "__main__":
            return not is_installed(name)
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    folders = [f"{folder}/.py" for folder in spec.submodule_search_locations or ()]
    return not any(map(_is_installed_file, [spec.origin] if spec.origin is not None else folders))


def _is_installed_file(file: str) -> bool:
    return file.startswith(_installed_folders()) or not file.endswith(".py")


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


@functools.cache
def _version(top: str) -> str:
    """The version of an installed package, loaded or not: many have no `__version__`."""
    if top == "builtins" or top in sys.stdlib_module_names:
        return ""
    if top == "guerdon":
        return str(getattr(sys.modules.get(top), "__version__", ""))
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(top)
    versions = {importlib.metadata.version(name) for name in _packages().get(top, ())}
    return " ".join(sorted(versions)) or str(getattr(sys.modules.get(top), "__version__", ""))


@functools.cache
def _packages() -> Mapping[str, list[str]]:
    """The packages that have a module of each name."""
    return importlib.metadata.packages_distributions()
