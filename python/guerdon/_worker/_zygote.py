"""Entry of the zygote: ``python <this folder>/_zygote.py <pid of the engine>``, control socket as
stdin. If ``measure`` or ``load`` replaces the pid, it is an entry of `measure`, for ``check`` or
``setup`` one of `check`.

- The folder of this script never stays on ``sys.path``: user imports must not find our modules.
- The modules of this folder are loaded as a separate package: no process of the lane imports
  guerdon unless a function does.
"""

from __future__ import annotations

import sys

if not getattr(sys.flags, "safe_path", False):  # with -P or PYTHONSAFEPATH the folder is not there
    del sys.path[0]

PACKAGE = "_guerdon_worker"


def _load_package(folder: str) -> None:
    import types

    package = types.ModuleType(PACKAGE, "The worker's side of guerdon's process lane.")
    package.__path__ = [folder]
    sys.modules[PACKAGE] = package


if __name__ == "__main__":
    _load_package(__file__.rpartition("/")[0])
    from importlib import import_module

    if sys.argv[1] == "measure":
        import_module(f"{PACKAGE}.measure").main("load")
    elif sys.argv[1] == "load":
        import_module(f"{PACKAGE}.measure").load()
    elif sys.argv[1] == "check":
        import_module(f"{PACKAGE}.measure").main("setup")
    elif sys.argv[1] == "setup":
        import_module(f"{PACKAGE}.check").run()
    else:
        import_module(f"{PACKAGE}.zygote").main(int(sys.argv[1]))
