"""The serialized functions, loaded by the loader or by the worker itself.

- A function that can't be loaded fails alone: its error is kept and reported for each of its calls.
- Loading imports and unpickles, nothing else; ``setup()`` runs in workers only.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import mmap
import os
import pickle
import sys
import types
from typing import Any

from .invoke.call import Call
from .invoke.reasons import reason_of
from .invoke.tracebacks import traceback_of
from .resource_limits import missing_variable
from .timeout_signal import CallInterrupted

Buffer = bytes | mmap.mmap
# Names of the user's program: in its own process, and in those that multiprocessing spawns.
_MAINS = ("__main__", "__mp_main__")


# True while a function is being loaded: guerdon reads it when the user's module imports guerdon.
under_way = False


class LoadFailure:
    """Why a function could not be loaded."""

    __slots__ = ("reason", "traceback")

    def __init__(self, reason: str, traceback: str | None) -> None:
        self.reason = reason
        self.traceback = traceback


class LoadedFunctions:
    """The functions by their index; each is loaded once, at its first use.

    Args:
        serialized: What `guerdon._functions.serialization.serialized_functions.serialize` returned.
    """

    def __init__(self, serialized: Buffer) -> None:
        content: dict[str, Any] = pickle.loads(serialized)
        sys.path[:] = content["sys_path"]
        self._main = _new_main(content["main_path"], content["main_name"])
        self._stamps: dict[str, tuple[str, int, int]] = content["stamps"]
        # Names of the trainer's variables that workers don't get.
        self.hidden: frozenset[str] = frozenset(content.get("hidden", ()))
        self._entries: list[dict[str, Any] | None] = content["functions"]
        self._loaded: dict[int, Call | LoadFailure] = {}

    def indexes(self) -> list[int]:
        """Returns the indexes of the process lane's functions."""
        return [index for index, entry in enumerate(self._entries) if entry is not None]

    def load_all(self) -> None:
        """Loads every function that is not loaded yet."""
        for index in self.indexes():
            self.get(index)

    def is_loaded(self, index: int) -> bool:
        return index in self._loaded

    def get(self, index: int) -> Call | LoadFailure:
        """Returns the function, or the reason why it could not be loaded."""
        found = self._loaded.get(index)
        if found is None:
            found = self._loaded[index] = self._load(index)
        return found

    def recipe(self, index: int) -> dict[str, Any]:
        entry = self._entries[index]
        assert entry is not None, "the engine sends only functions of the process lane"
        recipe: dict[str, Any] = entry["recipe"]
        return recipe

    def _load(self, index: int) -> Call | LoadFailure:
        entry = self._entries[index]
        if entry is None:
            return LoadFailure("not a function of the process lane", None)
        global under_way
        under_way = True
        try:
            return Call(self._target(entry["target"]), entry["recipe"])
        except CallInterrupted:
            raise
        except BaseException as error:  # SystemExit at import too
            reason = reason_of(error) + missing_variable(error, self.hidden)
            return LoadFailure(f"could not be loaded in a worker: {reason}", traceback_of(error))
        finally:
            under_way = False

    def _target(self, target: tuple[Any, ...]) -> Any:
        if target[0] == "value":
            found = pickle.loads(target[1])
            self._share_globals(found)
            return found
        _, module, qualname = target
        found = importlib.import_module(module)
        self._warn_if_changed(module)
        for part in qualname.split("."):
            found = getattr(found, part)
        return getattr(found, "__guerdon_target__", found)

    def _warn_if_changed(self, module: str) -> None:
        """Warns if the file changed since registration: other workers may run the old code."""
        file, changed, size = self._stamps.pop(module, (None, 0, 0))
        if file is None:
            return
        try:
            now = os.stat(file)
        except OSError:
            return
        if (now.st_mtime_ns, now.st_size) != (changed, size):
            print(
                f"warning: {file} was edited after the dispatcher was made. This worker loaded the new code, others may run "
                "the old. Make a new dispatcher so that all run the same.",
                file=sys.stderr,
            )

    def _share_globals(self, found: Any) -> None:
        """Puts the globals that came with a function of ``__main__`` into our ``__main__``.

        Processes that the function starts look for its helpers there.
        """
        function = getattr(found, "__func__", found)
        if isinstance(function, types.FunctionType) and function.__module__ in _MAINS:
            for name, value in function.__globals__.items():
                self._main.__dict__.setdefault(name, value)
            self._main.__dict__.setdefault(function.__name__, function)


def _new_main(path: str | None, name: str | None) -> types.ModuleType:
    """A ``__main__`` with the path and name of the user's program, not of the zygote's script.

    Processes that a function spawns import the user's program by them (name: of ``python -m``).
    """
    main = types.ModuleType("__main__")
    if path is not None:
        main.__file__ = path
    if name is not None:
        main.__spec__ = importlib.machinery.ModuleSpec(name, None, origin=path)
        main.__package__ = main.__spec__.parent
    for each in _MAINS:
        sys.modules[each] = main
    sys.argv[:] = [path or ""]
    return main
