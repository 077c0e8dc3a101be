"""Pickling of functions: by reference what another process can import, by value what it can't.

- P-1  What `dumps` gives can be loaded by a process that has this one's ``sys.path``, cloudpickle, and nothing of
       ``__main__``.
- P-2  A decorated function that travels by value travels as the plain function; loading it doesn't import guerdon.
- P-3  Modules that only this process knows are by value for the time of one `dumps`, not after it.
- P-4  What can be pickled and must not travel (a tensor of a device) is refused like what can't be pickled.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import sys
import threading
from operator import itemgetter
from types import FunctionType, ModuleType
from typing import Any

from guerdon._serialization.device_tensors import refuse_device
from guerdon._serialization.importable import find_attribute, importable
from guerdon.functions import RewardFunction
from guerdon.stateful import StatefulReward

__all__ = ["dumps"]

# cloudpickle keeps the modules that go by value in one table of the process (P-3).
_lock = threading.RLock()


def dumps(value: object) -> bytes:
    """Pickle `value`; `pickle.loads` reads it.

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
    return file.getvalue()


@functools.cache
def _pickler_class() -> Any:
    """The pickler, made when first needed because cloudpickle takes long to import."""
    import cloudpickle

    registered = cloudpickle.list_registry_pickle_by_value

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc,unused-ignore]  # cloudpickle is typed in some versions
        def __init__(self, file: io.BytesIO) -> None:
            super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
            self.by_value: list[ModuleType] = []
            self._known: dict[str, bool] = {}

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
            return super().reducer_override(value)

        def _shared(self, name: object) -> bool:
            """Whether other processes can import the module `name`; if not, it goes by value from here on."""
            if not isinstance(name, str):
                return False
            known = self._known.get(name)
            if known is None:
                known = self._known[name] = importable(name)
                module = sys.modules.get(name)
                if not known and isinstance(module, ModuleType) and module.__name__ not in registered():
                    cloudpickle.register_pickle_by_value(module)
                    self.by_value.append(module)
            return known

        def _found(self, value: Any) -> bool:
            """Whether other processes find this very object under its name."""
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

    return Pickler
