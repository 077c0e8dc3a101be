"""Version of a row's function: a hash of its source and of the options that decide its values, as
far as these are known without looking into large objects.

For a function with a cache folder it is the beginning of that version
(`guerdon._functions.cache.versions`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any, Final

from guerdon._functions.cache.python_code import PythonCode
from guerdon._functions.cache.versions import composite_version, http_version, kernel_version, version_of
from guerdon._functions.spec import FunctionSpec

__all__ = ["source_version"]

_DIGITS: Final = 16
_MOST_VALUES: Final = 1000


class _SourceCode(PythonCode):
    """Adds up code, and of objects their class and plain attributes: never a model's weights. Hash
    of a function's source; an import in its body counts by its name: a journal imports nothing."""

    _most_parts = 50_000

    def _imported(self, function: FunctionType, place: str) -> Iterable[ModuleType | str]:
        return ()

    def _add_object(self, value: Any, place: str) -> None:
        kind = type(value)
        self._put("object", f"{kind.__module__}.{kind.__qualname__}".encode())
        self.add(kind, place)
        plain = (type(None), bool, int, float, complex, str, bytes)
        attributes = getattr(value, "__dict__", None)
        for name, attribute in sorted(attributes.items() if type(attributes) is dict else ()):
            if type(attribute) in plain:
                self._put("attribute", str(name).encode())
                self.add(attribute, place)

    def _add_composite(self, value: Any, place: str) -> None:
        if isinstance(value, (tuple, list, dict, set, frozenset)) and len(value) > _MOST_VALUES:
            # A table, say: its contents are data.
            self._put("many", f"{type(value).__qualname__} {len(value)}".encode())
        else:
            super()._add_composite(value, place)


def source_version(spec: FunctionSpec) -> str:
    """The version of a function as 16 hexadecimal digits; "" if it is unknown."""
    try:
        if spec.cache is not None:
            digest = version_of(spec)
        elif spec.composition is not None:
            digest = composite_version(spec, source_version)
        elif spec.lane == "http":
            digest = http_version(spec)
        elif spec.lane == "native":
            digest = kernel_version(spec)
        else:
            code = _SourceCode()
            how = (spec.name, spec.rowwise, spec.batch_size is not None, list(spec.wants.named))
            code.add(("python", sys.implementation.cache_tag, *how), "")
            code.add(spec.target, "the function")
            digest = code.digest()
    # whatever its values do when they are looked at: a version never stops the run
    except Exception:
        return ""
    return digest.hex()[:_DIGITS]
