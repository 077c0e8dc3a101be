"""Source that a sandbox runs for a case that calls a function: the call, then its value as bytes.

- It is sent as source, behind `encoding` and some functions of `child`: it imports the standard
  library alone, and works on Python 3.8.
- It reads a nonce, and the call, and says that it did, before the program is defined: a failure
  until then is not the program's fault. That finds its standard streams at the null device.
- No expected value is here. A program can write an answer itself: a value, which is then compared.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from binascii import b2a_base64
from collections import deque
from decimal import Decimal
from fractions import Fraction
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guerdon.rewards.code.child.child import _define, _found, _raised
    from guerdon.rewards.code.child.encoding import encode
    from guerdon.rewards.code.trusted.case_judge import ITERATORS

__all__ = ["answer_call"]

# Names in the `repr` of data, beside literals.
_KNOWN = {
    "nan": float("nan"),
    "inf": float("inf"),
    "nanj": complex(0.0, float("nan")),
    "infj": complex(0.0, float("inf")),
    "set": set,
    "frozenset": frozenset,
    "range": range,
    "deque": deque,
    "datetime": datetime,
    "Decimal": Decimal,
    "Fraction": Fraction,
}


def answer_call(source: str, prelude: str, limit: int) -> None:
    """Answer the one call that standard input holds; never returns."""
    # Programs here have no such limit, and Python before 3.11 has none either.
    getattr(sys, "set_int_max_str_digits", int)(0)
    nonce, _, request = sys.stdin.read().partition("\n")
    call = json.loads(request)
    args, kwargs = eval(call["arguments"], {"__builtins__": {}, **_KNOWN})
    out = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)

    def end(kind: str, text: str) -> None:
        left = memoryview(("\n" + nonce + " " + kind + " " + text + "\n").encode("ascii"))
        while left:
            left = left[os.write(out, left) :]
        os._exit(0)

    os.write(out, (nonce + " ready\n").encode("ascii"))

    def fault(error: BaseException, before: str = "") -> None:
        name, text = _raised(error)
        end("fault", json.dumps((before + (name + ": " + text if text else name))[:400]))

    module = ModuleType("program")
    sys.modules["program"] = module
    try:
        _define(prelude, source, module, os.dup(null))
    except BaseException as error:
        fault(error, "the program could not be loaded: ")
    try:
        function = _found(module, call["fn"])
        if function is None:
            end("fault", json.dumps("the program defines no " + repr(call["fn"])))
        value = function(*args, **kwargs)
        kind, form = type(value).__name__, "value"
        if kind in ITERATORS:
            value, form = (kind, list(value)), "iterator"
    except BaseException as error:
        fault(error)
    try:
        data = encode(value, limit, opaque=lambda value: 0)
    except BaseException as error:
        end("fault", json.dumps(("what it returned is no data: " + _raised(error)[1])[:400]))
    end(form, b2a_base64(data, newline=False).decode("ascii"))
