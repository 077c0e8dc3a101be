"""Main module of a program's own process, inside the fences: the untrusted program.

- Nothing here is trusted by anyone: a program may change all of it. It is given no test, expected
  value or result.
- ``script``: the program as ``__main__``, with standard input and output. ``calls``: it is defined
  once, then each call comes as a message, with a nonce, and its value goes back as one.
- Descriptors: 0, 1 and 2 as usual, 3 the channel, and the mark, which says that all before the
  program went well, or that its prelude failed: it is closed before any of the program runs. The
  process ends here, not in the zygote.
"""

from __future__ import annotations

import _thread
import atexit
import builtins
import contextlib
import os
import resource
import socket
import sys
from functools import partial
from types import CodeType, ModuleType
from typing import Any, Final, NoReturn

from guerdon.rewards.code.child.arguments import is_marshalled, pack, unpack
from guerdon.rewards.code.child.encoding import EncodingError, encode
from guerdon.rewards.code.child.frames import receive_blocking, send_blocking
from guerdon.rewards.code.child.objects import Objects

__all__ = ["CHANNEL", "ENTERED", "MAKES", "PRELUDE", "run"]

CHANNEL: Final = 3
ENTERED: Final = b"1"
"""Meaning of the mark; with a text after it where another program could not be run."""
PRELUDE: Final = b"P"
"""After that, before a text: the prelude failed."""
MAKES: Final = "+"
"""Before the name of a class whose object the tests use as one, also where it is one of data."""
_FILE: Final = "<program>"
_LONGEST_MESSAGE: Final = 300
_STREAMS: Final = ("stdin", "stdout", "stderr")
# Modules that have `stack_size`.
_THREADS: Final = ("_thread", "threading")
# An interpreter has adapted a function after some calls.
_REHEARSALS: Final = 8


def run(mode: str, mark: int) -> None:
    """Run the program that the first message of the channel holds; never returns.

    Raises:
        BaseException: Before anything of the program ran.
    """
    first = receive_blocking(CHANNEL)
    if first is None:
        os._exit(70)
    request = unpack(first)
    if request.get("opens_stdin"):
        _copy_stdin()
    if mode in ("exec", "build"):
        _exec(request, mark)
    os.write(mark, ENTERED)
    status = 70
    try:
        status = _script(request, mark) if mode == "script" else _calls(request, mark)
    except BaseException as error:  # the process must end here after any exception
        try:
            os.write(2, f"{_described(error)}\n".encode("utf-8", "replace"))
        except BaseException:
            os._exit(status)
    os._exit(status)


def _exec(request: dict[str, Any], mark: int) -> NoReturn:
    """Becomes another program: a compiler, or its product. That closes the mark."""
    command = request["command"]
    for path, text in request["files"].items():
        with open(path, "wb") as file:
            file.write(text)
    os.close(CHANNEL)
    os.write(mark, ENTERED)
    try:
        os.execve(command[0], command, request["environment"])
    except OSError as error:
        if not command[0].startswith("./"):
            raise
        # The product of its compiler.
        os.write(2, f"{command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(127)


def _copy_stdin() -> None:
    """Makes /dev/stdin a copy of the input if it leads into the program's folder, where no /proc
    is."""
    with contextlib.suppress(OSError):
        path = os.readlink("/dev/stdin")
        if not path.startswith("/proc/"):
            with open(path, "wb") as file:
                os.sendfile(file.fileno(), 0, 0, os.fstat(0).st_size)


def _main_module() -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    return main


def _open_streams() -> None:
    """The standard streams over this process's descriptors; the zygote's own are /dev/null, as all
    are where functions are called."""
    texts: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape", "closefd": False}
    streams = (
        open(0, **texts),  # noqa: SIM115 - for the whole process
        open(1, "w", **texts),  # noqa: SIM115
        open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1),  # noqa: SIM115
    )
    for name, stream in zip(_STREAMS, streams, strict=True):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _script(request: dict[str, Any], mark: int) -> int:
    os.close(CHANNEL)
    _open_streams()
    sys.argv = ["program.py"]
    atexit._clear()
    _bound_stacks()
    main = _main_module()
    main.__dict__["__file__"] = os.path.abspath(sys.argv[0])
    status = 0
    try:
        _define(request["prelude"], request["source"], main, mark)
    except SystemExit as stop:
        status = _exit_status(stop.code)
    except BaseException as error:
        status = 1
        sys.stderr.write(f"{_described(error)}\n")
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()  # as Python ends: pools end their threads, then these are joined
    atexit._run_exitfuncs()
    _flush()  # streams of the program's own may need its globals
    main.__dict__.clear()  # files that it left open write what they hold
    _flush()
    return status


def _bound_stacks() -> None:
    """Has a stack that is asked for, of half a gigabyte as is usual for deep recursion, fit into
    the memory: that of Python's functions is not on it."""
    most, stack_size = resource.getrlimit(resource.RLIMIT_DATA)[0] // 4, _thread.stack_size

    def bounded(size: int = 0) -> int:
        return stack_size(min(size, most) if most > 0 else size)

    _thread.stack_size = bounded
    threading = sys.modules.get("threading")
    if threading is not None:
        threading.stack_size = bounded  # type: ignore[attr-defined]


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        with contextlib.suppress(Exception):  # closed, or put there by the program
            stream.flush()  # type: ignore[union-attr]


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 255
    sys.stderr.write(f"{code}\n")
    return 1


def _define(prelude: str, source: str, module: ModuleType, mark: int) -> None:
    """Runs the prelude and the program; as one text where the program is only its continuation, as
    the body of a function that the prelude begins. Closes the mark before anything of the program.
    """
    before = _compiled(prelude, "<prelude>") if prelude else None
    # Compiled again below, so that its memory until then is not counted as the prelude's.
    alone = not prelude or (before is not None and _compiled(source, _FILE) is not None)
    if before is not None:
        try:
            exec(before, module.__dict__ if alone else dict(module.__dict__))
        except BaseException as error:
            name, text = _raised(error)
            os.write(mark, PRELUDE + (name + ": " + text).encode("utf-8", "replace"))
            raise
    os.close(mark)
    exec(compile(source if alone else prelude + source, _FILE, "exec", dont_inherit=True), module.__dict__)


def _compiled(text: str, name: str) -> CodeType | None:
    """None for a text that is not Python by itself."""
    try:
        return compile(text, name, "exec", dont_inherit=True)
    except SyntaxError:
        return None


def _calls(request: dict[str, Any], mark: int, channel: int = CHANNEL) -> int:
    module = _main_module()
    # A module of this name, but not as the program: ``if __name__ == "__main__"`` is for scripts.
    module.__dict__["__name__"] = "program"
    sys.modules["program"] = module
    _bound_stacks()
    limit = request["limit"]
    try:
        _define(request["prelude"], request["source"], module, mark)
    except BaseException as error:
        send_blocking(channel, encode((request["nonce"], "raised", *_raised(error))))
        return 0
    send_blocking(channel, encode((request["nonce"], "value", None)))
    objects = Objects(module)
    while (message := receive_blocking(channel)) is not None:
        nonce, name, args, kwargs = unpack(message)
        try:
            if not is_marshalled(message):
                args, kwargs = objects.given(args), objects.given(kwargs)
            called = name.removeprefix(MAKES)
            function = partial(objects.do, name[1:]) if name[:1] == "#" else _found(module, called)
            if function is None:
                answer = encode((nonce, "missing", called))
            else:
                value = function(*args, **kwargs)
                value = objects.held(value) if called != name else value
                answer = encode((nonce, "value", value), limit, opaque=objects.number)
        except EncodingError as error:
            answer = encode((nonce, "raised", "", str(error)))
        except BaseException as error:
            answer = encode((nonce, "raised", *_raised(error), *_builtin_bases(error)))
        send_blocking(channel, answer)
    return 0


def rehearse() -> None:
    """Answers calls of a small program, in the zygote: the interpreter writes its caches here once,
    not in a copy of their pages in each child. The modules are left as they were."""
    request = pack({"source": "def same(one):\n    return one\n", "prelude": "", "nonce": b"", "limit": 1 << 16})
    values = (None, True, 1, 1.0, "a", b"a", [1, "a"], (1, 2), {"a": [1]}, {1})
    calls = [pack((b"", "same", [value], {})) for value in values] + [pack((b"", "same", [], {}))]
    kept = [(sys, name, getattr(sys, name)) for stream in _STREAMS for name in (stream, f"__{stream}__")]
    kept += [
        (sys.modules[name], "stack_size", sys.modules[name].stack_size) for name in _THREADS if name in sys.modules
    ]
    modules = {name: sys.modules.get(name) for name in ("__main__", "program")}
    try:
        for _ in range(_REHEARSALS):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                for message in calls:
                    send_blocking(ours.fileno(), message)
                ours.shutdown(socket.SHUT_WR)
                with contextlib.suppress(OSError):  # a descriptor is closed
                    _open_streams()
                _calls(unpack(request), os.dup(theirs.fileno()), theirs.fileno())
    finally:
        for module, name, value in kept:
            setattr(module, name, value)
        for name, found in modules.items():
            if found is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = found


def _found(module: ModuleType, name: str) -> Any:
    """The function ``name``, or the method of a class that is made without arguments; one of
    ``Solution`` if there is no such function. None where there is nothing of that name."""
    head, _, method = name.partition(".")
    found = module.__dict__.get(head)
    if found is None and not method and hasattr(module.__dict__.get("Solution"), name):
        found, method = module.__dict__["Solution"], name
    return getattr(found(), method, None) if found is not None and method else found


def _raised(error: BaseException) -> tuple[str, str]:
    name = type(error).__name__
    try:
        text = str(error)[:_LONGEST_MESSAGE]
    except BaseException:
        text = ""
    return str(name)[:_LONGEST_MESSAGE], text


def _builtin_bases(error: BaseException) -> list[str]:
    """The name of the builtin exception that one of the program's own is."""
    return [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"][:1]


def _described(error: BaseException) -> str:
    name, text = _raised(error)
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    place = "" if line is None else f" (line {line} of the program)"
    return f"{name}: {text}{place}" if text else f"{name}{place}"
