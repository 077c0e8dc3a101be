"""Pickling of functions: by reference what another process can import, else by value.

- A process with this ``sys.path`` and cloudpickle can load the result, without our ``__main__``.
- A decorated function is pickled by value as the plain function; loading it doesn't import guerdon.
- Modules that exist only in this process are registered by value, for the time of one `dumps`.
- Values that could be pickled but must not be sent (a tensor of a device) are refused the same way.
"""

from __future__ import annotations

import copyreg
import functools
import io
import os
import pickle
import sys
import threading
from operator import itemgetter
from types import FunctionType, ModuleType
from typing import Any

from guerdon._functions.callables import find_attribute
from guerdon._functions.reward_function import RewardFunction
from guerdon._functions.serialization.importable import importable
from guerdon._functions.serialization.tensors import refuse_device, small_copy
from guerdon._functions.stateful import StatefulReward

__all__ = ["dumps"]

# cloudpickle has one table of modules by value for the whole process.
_lock = threading.RLock()


def _after_fork() -> None:
    """Runs in a forked child: the thread that held the lock is not here."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def dumps(value: object, modules: set[str] | None = None) -> bytes:
    """Pickle `value`; `pickle.loads` reads it.

    Args:
        modules: The modules that it imports are added.

    Raises:
        Exception: Whatever the pickling of something inside raised.
    """
    import cloudpickle

    file = io.BytesIO()
    with _lock:
        pickler = _pickler_class()(file)
        try:
            pickler.dump(value)
        finally:
            for module in pickler.by_value:
                cloudpickle.unregister_pickle_by_value(module)
    if modules is not None:
        modules.update(name for name, is_shared in pickler.known.items() if is_shared)
    return file.getvalue()


@functools.cache
def _pickler_class() -> Any:
    """The pickler class, made when first needed because cloudpickle is slow to import."""
    import cloudpickle

    registered = cloudpickle.list_registry_pickle_by_value

    class FunctionPickler(cloudpickle.CloudPickler):  # type: ignore[misc,unused-ignore]  # cloudpickle is typed in some versions
        def __init__(self, file: io.BytesIO) -> None:
            super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
            self.by_value: list[ModuleType] = []
            self.known: dict[str, bool] = {}

        def reducer_override(self, value: Any) -> Any:
            kind = type(value)
            if kind is FunctionType or issubclass(kind, type):
                self._shared(getattr(value, "__module__", None))
            elif kind is ModuleType:
                self._shared(value.__name__)
            elif kind is RewardFunction:
                return self._decorated(value)
            elif kind is functools._lru_cache_wrapper and not self._found(value):
                return functools.lru_cache(**value.cache_parameters()), (value.__wrapped__,)
            refuse_device(value)
            copy = small_copy(value)
            if copy is not None:
                return copy.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
            return super().reducer_override(value)

        def _shared(self, name: object) -> bool:
            """Returns whether other processes can import the module `name`; if not, registers it by
            value."""
            if not isinstance(name, str):
                return False
            known = self.known.get(name)
            if known is None:
                known = self.known[name] = importable(name)
                module = sys.modules.get(name)
                if not known and isinstance(module, ModuleType) and module.__name__ not in registered():
                    cloudpickle.register_pickle_by_value(module)
                    self.by_value.append(module)
            return known

        def _found(self, value: Any) -> bool:
            """Returns whether other processes find this object under its name."""
            module = getattr(value, "__module__", None)
            qualname = getattr(value, "__qualname__", None)
            return (
                isinstance(qualname, str)
                and self._shared(module)
                and find_attribute(sys.modules.get(module or ""), qualname) is value
            )

        def _decorated(self, value: RewardFunction[..., Any]) -> Any:
            if self._found(value):
                return getattr(value, "__qualname__")  # noqa: B009 - set by update_wrapper
            target = value.__guerdon_target__
            if isinstance(target, StatefulReward):
                return copyreg.__newobj__, (RewardFunction,), value.__dict__  # type: ignore[attr-defined]  # of copyreg
            return itemgetter(0), ((target,),)

    return FunctionPickler
