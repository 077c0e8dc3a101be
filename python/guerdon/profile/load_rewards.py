"""REWARDS: from the command line's argument to a dispatcher.

- ``file.py`` and ``module`` mean every decorated function and `StatefulReward` instance in it, or
  its one `Dispatcher`; ``…:a,b`` means these, in this order, decorated or not.
- A file is imported under its own name if that is free, so that its functions reach the workers by
  reference; else under another, and by value. Its folder is on the path, as for a script.
- An error that the file raises comes with the traceback of its own lines.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from guerdon._functions.stateful import StatefulReward
from guerdon._lanes.http.reward import HttpReward
from guerdon._lanes.http.rubric import Rubric
from guerdon.dispatcher import Dispatcher
from guerdon.errors import GuerdonError
from guerdon.functions import RewardFunction
from guerdon.profile.exit_codes import UsageError

__all__ = ["file_of", "find", "load"]


def load(
    rewards: str,
    *,
    workers: int | None = None,
    max_failure_rate: float | None = None,
    batch_timeout: float | None = None,
) -> Dispatcher:
    """The dispatcher that `rewards` names; options that are None keep their value there.

    Raises:
        UsageError: There is no such file, module or name, or it raised.
        RegistrationError: A function in it is invalid.
    """
    place, names = _split(rewards)
    module = _import(place)
    items = [_attribute(module, name, place) for name in names] if names else _all_rewards(module, place)
    given = {"workers": workers, "max_failure_rate": max_failure_rate, "batch_timeout": batch_timeout}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    dispatchers = [item for item in items if isinstance(item, Dispatcher)]
    if not dispatchers:
        return Dispatcher(items, **options)
    if len(items) > 1:
        raise UsageError(f"{rewards}: a Dispatcher can't be mixed with other rewards. Name it alone, {place}:name.")
    dispatcher = dispatchers[0]
    return dispatcher.replace(**options) if options else dispatcher


def find(place: str, name: str) -> Any:
    """The attribute `name` of the file or module `place`.

    Raises:
        UsageError: As `load`.
    """
    return _attribute(_import(place), name, place)


def file_of(rewards: str) -> str | None:
    """The file of what `load` loaded, None if it has none."""
    place, _ = _split(rewards)
    return place if _is_file(Path(place)) else getattr(sys.modules.get(place), "__file__", None)


def _split(rewards: str) -> tuple[str, list[str]]:
    place, colon, listed = rewards.rpartition(":")
    if not colon:
        return rewards, []
    names = [name.strip() for name in listed.split(",")]
    if not place or not all(names):
        raise UsageError(f"{rewards!r}: expected file.py, module, or one of them with names, file.py:a,b.")
    return place, names


def _import(place: str) -> ModuleType:
    path = Path(place)
    if path.suffix == ".py" or os.sep in place or _is_file(path):
        if not _is_file(path):
            raise UsageError(_a_folder(place) if os.path.isdir(place) else f"there is no file {place!r}.")
        return _import_or_explain(lambda: _import_file(path.resolve()), place)
    if not all(part.isidentifier() for part in place.split(".")):
        raise UsageError(f"{place!r} is neither a file that ends in .py nor the name of a module.")
    if "" not in sys.path and os.getcwd() not in sys.path:  # as `python -m` does
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.util.find_spec(place)
        missing = found is None
    except ModuleNotFoundError:
        found, missing = None, True
    if found is not None and found.origin is None and found.submodule_search_locations is not None:
        raise UsageError(_a_folder(place))  # Python would take it for an empty package
    if missing:
        also = f" Did you mean the file {place}.py?" if _is_file(Path(f"{place}.py")) else ""
        raise UsageError(f"there is no module {place!r} on the path.{also}")
    return _import_or_explain(lambda: importlib.import_module(place), place)


def _a_folder(place: str) -> str:
    return f"{place!r} is a folder, not a rewards file. Give file.py, or the name of a module."


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False


def _import_file(path: Path) -> ModuleType:
    """Imports a file, under its own name if that is free."""
    free = _is_free(path)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    if free:
        return importlib.import_module(path.stem)
    name = f"guerdon_rewards_{abs(hash(str(path))):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{str(path)!r} is not a Python file: its name should end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle need it while the file runs
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _is_free(path: Path) -> bool:
    """Returns whether no other module, loaded or on the path, has the file's name."""
    stem = path.stem
    if path.suffix != ".py" or not stem.isidentifier() or stem in sys.stdlib_module_names:
        return False
    known = sys.modules.get(stem)
    if known is not None:
        return os.path.realpath(getattr(known, "__file__", None) or "") == str(path)
    spec = importlib.util.find_spec(stem)
    return spec is None or os.path.realpath(spec.origin or "") == str(path)


def _import_or_explain(imported: Callable[[], ModuleType], place: str) -> ModuleType:
    """The module; an error in it becomes a `UsageError` with its traceback.

    Output of the import goes to stderr, as it is not a result, and streams that it replaces are put
    back.
    """
    streams = sys.stdout, sys.stderr
    sys.stdout = sys.stderr
    try:
        return imported()
    except GuerdonError as error:
        raise UsageError(f"{place}: {error}") from error
    except (Exception, SystemExit) as error:
        lines = "".join(traceback.format_exception(type(error), error, _user_traceback(error))).rstrip()
        raise UsageError(f"{place} can't be loaded, it raised:\n{lines}") from error
    finally:
        sys.stdout, sys.stderr = streams


def _user_traceback(error: BaseException) -> Any:
    """The traceback from the user's first frame on; all of it without one (SyntaxError)."""
    own = (__file__, importlib.__file__, "<frozen importlib")
    here = error.__traceback__
    while here is not None and here.tb_frame.f_code.co_filename.startswith(own):
        here = here.tb_next
    return here


def _all_rewards(module: ModuleType, place: str) -> list[Any]:
    """Every reward in the module, each once, in the order of definition."""
    values = list(_unique(vars(module).values()))
    dispatchers = [value for value in values if isinstance(value, Dispatcher)]
    if len(dispatchers) > 1:
        names = [name for name, value in vars(module).items() if isinstance(value, Dispatcher)]
        raise UsageError(f"{place} has {len(dispatchers)} dispatchers. Name the one to use: {place}:{names[0]}.")
    if dispatchers:
        return dispatchers
    rewards = [value for value in values if _is_reward(value)]
    if not rewards:
        plain = [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__ and callable(value) and not isinstance(value, type)
        ]
        hint = f", or name the functions: {place}:{','.join(plain[:3])}" if plain else ""
        raise UsageError(f"{place} has no rewards. Decorate its functions with @guerdon.reward{hint}.")
    return rewards


def _unique(values: Iterable[Any]) -> Iterable[Any]:
    seen = set()
    for value in values:
        if id(value) not in seen:
            seen.add(id(value))
            yield value


def _is_reward(value: object) -> bool:
    """A decorated function, a judge, a reward of `guerdon.rewards`."""
    marked = getattr(type(value), "__guerdon_decorated__", False)
    return marked or isinstance(value, (HttpReward, RewardFunction, Rubric, StatefulReward))


def _could_score(value: object) -> bool:
    """Returns whether a value is worth suggesting for a misspelt name: no helper from guerdon."""
    if isinstance(value, Dispatcher) or _is_reward(value):
        return True
    return (
        callable(value)
        and not isinstance(value, type)
        and not str(getattr(value, "__module__", "")).startswith("guerdon.")
    )


def _attribute(module: ModuleType, name: str, place: str) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            there = ", ".join(
                each for each, value in vars(module).items() if not each.startswith("_") and _could_score(value)
            )
            raise UsageError(f"{place} has no {name!r}. It has: {there or 'no reward functions'}.") from None
    return found
