"""verl's plugin: ``reward.reward_manager.name=guerdon`` needs no other setting.

verl loads it at ``import verl`` in each of its processes, by the entry point ``verl.plugins``. Most
have no reward manager, and verl's registry of them takes seconds to import: so nothing is imported
here, and the manager is registered when verl imports its registry.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Final

_REGISTRY: Final = "verl.experimental.reward_loop.reward_manager.registry"


class _Finder(MetaPathFinder):
    """Finds verl's registry as Python does, once, and registers the manager behind its import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]  # of this module's loader alone
        return spec


def _register() -> None:
    try:
        import guerdon.integrations.verl.reward_manager  # noqa: F401 # which registers itself
    except Exception as error:  # verl goes on without it
        warnings.warn(f"guerdon could not register its reward manager with verl: {error}", stacklevel=2)


if _REGISTRY in sys.modules:
    _register()
else:
    sys.meta_path.insert(0, _Finder())
