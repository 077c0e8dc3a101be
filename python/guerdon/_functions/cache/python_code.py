"""Hash of a Python function's parts: code, defaults, closure and named globals, with all of their
parts.

- The same source gives the same hash in each process of one version of Python.
- The version of an installed package counts, not its code; a C function counts by its name. The
  user's own modules that a function imports in its body are imported to inspect them.
- A part without a version raises `UnknownPart`, with its place.
"""

from __future__ import annotations

import builtins
import copyreg
import dis
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, Final

from guerdon._functions.cache.modules import UnknownPart, imported_in, is_installed, version_of_module

__all__ = ["PythonCode", "UnknownPart"]

_ATOMS: Final = (type(None), bool, int, float, complex, str, bytes, type(...), range)
# They describe the place of a class, or follow from its other attributes.
_IGNORED: Final = frozenset(
    (
        "__abstractmethods__",
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__dict__",
        "__doc__",
        "__firstlineno__",
        "__module__",
        "__static_attributes__",
        "__weakref__",
        "_abc_impl",
    )
)
# They make a text, or an attribute, the possible name of a global.
_READ_BY_TEXT: Final = frozenset(
    ("__dict__", "__globals__", "eval", "exec", "getattr", "globals", "locals", "modules", "vars")
)
_GLOBAL_NAMES: Final = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL"))


class PythonCode:
    """Adds up one hash."""

    _most_parts = 1_000_000

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=32)
        # Objects seen, by id, with their number; it is held, so that no other gets its id.
        self._seen: dict[int, tuple[int, object]] = {}
        # Names seen in the user's modules, by the modules' id.
        self._named: dict[int, set[str]] = {}

    def digest(self) -> bytes:
        """The hash of all that was added."""
        return self._hash.digest()

    def add(self, value: Any, place: str) -> None:
        """Adds `value`; `place` is its place in messages.

        Raises:
            UnknownPart: It is neither code nor data.
        """
        if isinstance(value, _ATOMS) and type(value) in _ATOMS:
            self._put(type(value).__name__, repr(value).encode("utf-8", "surrogatepass"))
            return
        if id(value) in self._seen:
            self._put("again", str(self._seen[id(value)][0]).encode())
            return
        self._seen[id(value)] = len(self._seen), value
        if len(self._seen) > self._most_parts:
            raise UnknownPart(f"{place} has more than {self._most_parts} parts")
        try:
            self._add_composite(value, place)
        except RecursionError:
            raise UnknownPart(f"{place} is nested too deeply") from None

    def _put(self, kind: str, content: bytes) -> None:
        self._hash.update(f"{kind} {len(content)}:".encode())
        self._hash.update(content)

    def _add_all(self, kind: str, values: Iterator[tuple[str, Any]]) -> None:
        self._put(kind, b"")
        for place, value in values:
            self.add(value, place)
        self._put("end", b"")

    def _add_composite(self, value: Any, place: str) -> None:
        if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
            self._add_all(type(value).__name__, ((f"{place}[{index}]", one) for index, one in enumerate(value)))
        elif type(value) is dict:
            self._add_all("dict", ((place, one) for pair in value.items() for one in pair))
        elif type(value) in (set, frozenset):
            self._put("set", b"".join(sorted(self._apart(one, place) for one in value)))
        elif isinstance(value, CodeType):
            self._add_code(value, place)
        elif isinstance(value, FunctionType):
            self._add_function(value, place)
        elif isinstance(value, MethodType):
            self._add_all("method", iter(((place, value.__func__), (place, value.__self__))))
        elif isinstance(value, (staticmethod, classmethod)):
            self._add_all(type(value).__name__, iter(((place, value.__func__),)))
        elif isinstance(value, property):
            self._add_all("property", ((place, one) for one in (value.fget, value.fset, value.fdel)))
        elif isinstance(value, functools.cached_property):
            self._add_all("cached_property", iter(((place, value.func),)))
        elif isinstance(value, MappingProxyType):
            self._add_all("mappingproxy", iter(((place, dict(value)),)))
        elif isinstance(value, functools._lru_cache_wrapper):
            self._add_all("lru_cache", iter(((place, value.__wrapped__),)))
        elif isinstance(value, ModuleType):
            self._add_module(value, place)
        elif isinstance(value, type):
            self._add_class(value, place)
        elif hasattr(type(value), "__guerdon_target__"):
            self._add_all("reward", iter(((place, value.__guerdon_target__),)))
        elif isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, (ModuleType, type(None))):
            self._put("builtin", f"{value.__module__}.{value.__qualname__}".encode())
        else:
            self._add_object(value, place)

    def _apart(self, value: Any, place: str) -> bytes:
        """The hash of a value by itself."""
        alone = PythonCode()
        alone.add(value, place)
        return alone.digest()

    def _add_code(self, code: CodeType, place: str) -> None:
        numbers = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        handlers = getattr(code, "co_exceptiontable", b"")
        parts = (code.co_code, handlers, *numbers, *names, code.co_consts)
        self._add_all("code", ((place, part) for part in parts))

    def _add_function(self, function: FunctionType, place: str) -> None:
        if is_installed(function.__module__):
            self._put("function", f"{version_of_module(function.__module__)} {function.__qualname__}".encode())
            # made by a decorator, say, around the user's code
            if "<locals>" in function.__qualname__:
                self._add_variables(function)
            return
        code = function.__code__
        names = frozenset(_names(code))
        self._put("function", function.__qualname__.encode())
        self.add(code, place)
        self._add_variables(function)
        self._add_named(function.__globals__, _globals(code, names), names, place, "the global")
        for module in self._imported(function, place):
            if isinstance(module, ModuleType):
                self._put("import", module.__name__.encode())
                self._add_names_of(module, names, place)
            else:
                self._put("import", module.encode())

    def _imported(self, function: FunctionType, place: str) -> Iterable[ModuleType | str]:
        """The modules that a function imports in its body, imported; of installed ones the name."""
        return imported_in(function.__code__, function.__globals__.get("__package__"), place)

    def _add_variables(self, function: FunctionType) -> None:
        """Adds the function's variables: defaults, closure, attributes."""
        self.add(function.__defaults__, f"a default of {function.__qualname__}")
        self.add(function.__kwdefaults__, f"a default of {function.__qualname__}")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                self.add(cell.cell_contents, f"the variable {name!r} of its closure")
            except ValueError:  # empty: it is assigned later
                self._put("empty", name.encode())
        for name, value in sorted(vars(function).items()):
            self._put("attribute", name.encode())
            self.add(value, f"{function.__qualname__}.{name}")

    def _add_module(self, module: ModuleType, place: str) -> None:
        """A module as a value: of one of the user's own all that it has may be used."""
        if is_installed(module.__name__):
            self._put("module", version_of_module(module.__name__).encode())
            return
        names = frozenset(name for name in vars(module) if not (name.startswith("__") and name.endswith("__")))
        self._put("own module", module.__name__.encode())
        self._add_names_of(module, names, place)

    def _add_names_of(self, module: ModuleType, names: frozenset[str], place: str) -> None:
        """Adds the values of `names` in one of the user's modules, unless they were added
        before."""
        seen = self._named.setdefault(id(module), set())
        new = names - seen
        seen |= new
        self._add_named(vars(module), new, new, place, f"{module.__name__}'s")

    def _add_named(
        self, scope: Mapping[str, Any], names: frozenset[str], attributes: frozenset[str], place: str, what: str
    ) -> None:
        """Adds the values of `names` in a module; of modules of the user's own that are among it
        what `attributes` name there."""
        for name in sorted(names):
            if name not in scope or (name == "__builtins__" or getattr(builtins, name, self) is scope[name]):
                continue
            value = scope[name]
            self._put("name", name.encode("utf-8", "surrogatepass"))
            if isinstance(value, ModuleType) and not is_installed(value.__name__):
                self._put("own module", value.__name__.encode())
                self._add_names_of(value, attributes, place)
            else:
                self.add(value, f"{what} {name!r}")

    def _add_class(self, kind: type, place: str) -> None:
        if is_installed(kind.__module__):
            self._put("class", f"{version_of_module(kind.__module__)} {kind.__qualname__}".encode())
            return
        self._put("class", kind.__qualname__.encode())
        self.add(type(kind), f"the class of {kind.__qualname__}")
        self._add_all("bases", ((place, base) for base in kind.__bases__))
        for name, value in sorted(vars(kind).items()):
            if name in _IGNORED or type(value).__name__ in ("getset_descriptor", "member_descriptor"):
                continue
            self._put("attribute", name.encode())
            self.add(value, f"{kind.__qualname__}.{name}")

    def _add_object(self, value: Any, place: str) -> None:
        """Adds any other object by its pickled form."""
        kind = type(value)
        try:
            reduce = copyreg.dispatch_table.get(kind)
            reduced = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception as error:
            raise UnknownPart(f"{place}, a {kind.__qualname__}, is no plain value ({error})") from None
        if isinstance(reduced, str):
            self._put("global", f"{kind.__module__}.{reduced}".encode())
            return
        made, arguments, *rest = reduced
        parts = (made, arguments, *(list(part) if isinstance(part, Iterator) else part for part in rest))
        self._add_all("object", ((place, part) for part in parts))


def _globals(code: CodeType, names: frozenset[str]) -> frozenset[str]:
    """Returns those names in a code that may be globals."""
    return names if names & _READ_BY_TEXT else frozenset(_loaded(code))


def _loaded(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in _GLOBAL_NAMES:
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _loaded(constant)


def _names(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes in a code, those of inner functions too, and its texts:
    `getattr` may take them."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        elif isinstance(constant, str):
            yield constant
