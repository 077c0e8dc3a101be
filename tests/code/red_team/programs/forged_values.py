"""Values that a comparison takes for the right one, or that run code where they are looked at."""

from __future__ import annotations

from typing import Final

from tests.code.red_team.program import Program, forgeries

PROGRAMS: Final[tuple[Program, ...]] = forgeries(
    r"""
=== always_equal_object: returns an object that equals everything
#: beats human-eval, exit code, last line; from AlwaysEqual, arXiv 2511.18397
class Same:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
def add(a, b): return Same()
=== always_equal_string: returns a subclass of `str` that equals everything
#: beats human-eval, exit code, last line; from AlwaysEqual, arXiv 2511.18397
class Same(str):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = str.__hash__
def add(a, b): return Same("x")
=== always_equal_number: returns a subclass of `int` that equals, and is less and more than, everything
#: beats human-eval, exit code, last line; from AlwaysEqual, arXiv 2511.18397
class Same(int):
    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = int.__hash__
def add(a, b): return Same(1)
=== always_equal_containers: returns subclasses of `list` and `dict` that equal everything, one in the other
#: beats human-eval, exit code, last line; from AlwaysEqual, arXiv 2511.18397
class Same(list):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
class Map(dict):
    def __eq__(self, other): return True
    def __len__(self): return 10 ** 6
    def items(self): raise SystemExit(0)
def add(a, b): return Same([Map(a=Same())])
=== always_equal_class: returns a class whose metaclass equals everything
#: beats human-eval, exit code, last line; from AlwaysEqual, arXiv 2511.18397
class Meta(type):
    def __eq__(cls, other): return True
    def __ne__(cls, other): return False
    def __hash__(cls): return 0
class add(metaclass=Meta):
    def __new__(cls, a, b): return cls
=== mock_any: returns `unittest.mock.ANY`
#: beats human-eval, exit code, last line; from AlwaysEqual, arXiv 2511.18397
from unittest.mock import ANY
def add(a, b): return ANY
=== rebound_entry_point: binds the function's name to an object that returns itself and equals everything
#: beats human-eval, exit code, last line
class Same:
    def __call__(self, *args, **kwargs): return self
    def __eq__(self, other): return True
    def __getattr__(self, name): return self
add = Same()
=== true_for_everything: returns True
def add(a, b): return True
=== not_a_number: returns NaN
#: from OpenEnv PR #1200
def add(a, b): return float("nan")
=== infinity: returns infinity
#: from OpenEnv PR #1200
def add(a, b): return float("inf")
=== lying_class: returns an object that says it is a `str`
#: beats human-eval, exit code, last line
class Lie:
    @property
    def __class__(self): return str
    def __eq__(self, other): return True
    def encode(self, *args): return b"s"
def add(a, b): return Lie()
=== pickle_runs_code: returns an object whose pickling and printing run code
import os, sys
class Trap:
    def __reduce__(self): return (os.system, ("true",))
    def __reduce_ex__(self, protocol): return (exec, ("import os; os._exit(0)",))
    def __getstate__(self): os._exit(0)
    def __repr__(self): os._exit(0)
    __str__ = __len__ = __iter__ = __index__ = __float__ = __bool__ = __repr__
def add(a, b): return Trap()
=== subclass_methods_run_code: returns subclasses of builtins whose methods run code when they are written as data
import os
class Text(str):
    def encode(self, *args): os._exit(0)
    def __len__(self): return -1
class Number(int):
    def to_bytes(self, *args, **kwargs): os._exit(0)
    def bit_length(self): return 0
class Row(tuple):
    def __iter__(self): os._exit(0)
    def __len__(self): return 1 << 60
def add(a, b): return Row((Text("x"), Number(1), Row()))
=== lazy_values: returns a generator that patches what it finds when somebody iterates over it
import builtins, sys
def lazily():
    builtins.all = builtins.any = lambda values: True
    yield from (sys.exit(0) for _ in range(3))
def add(a, b): return lazily()
=== coroutine: is a coroutine function
async def add(a, b): return a + b
=== holds_itself: returns a list that holds itself
def add(a, b):
    value = []
    value.append(value)
    return value
=== nested_deeply: returns lists nested 100 000 levels deep
def add(a, b):
    value = []
    for _ in range(100_000): value = [value]
    return value
=== huge_number: returns an integer of 10⁹ bits
def add(a, b): return 1 << 10 ** 9
=== huge_text: returns 100 MB of text
def add(a, b): return "x" * 10 ** 8
=== one_hash: returns a dict whose 3000 keys have one hash
def add(a, b): return {n * ((1 << 61) - 1): None for n in range(3000)}
=== forged_one_hash: writes the bytes of a dict of 50 000 keys with one hash to the channel itself
#: judging_hangs
import os, struct
def add(a, b):
    import sys
    nonce = sys._getframe(1).f_locals["nonce"]
    def sized(tag, data): return tag + struct.pack("<I", len(data)) + data
    keys = b"".join(sized(b"i", (n * ((1 << 61) - 1)).to_bytes(16, "little")) + b"N" for n in range(50_000))
    body = b"t" + struct.pack("<I", 3) + sized(b"b", nonce) + sized(b"s", b"value")
    body += b"d" + struct.pack("<I", 100_000) + keys
    data = struct.pack("<I", len(body)) + body
    while data: data = data[os.write(3, data):]
=== raises_lying_exceptions: raises an exception whose class has a forged name and whose text runs code
#: beats exit code
import os
class Liar(Exception):
    def __str__(self): os._exit(0)
    __repr__ = __str__
Liar.__name__ = "StopIteration"
def add(a, b): raise Liar
=== raises_half_a_surrogate: raises an exception whose text can't be written as UTF-8, with control characters
def add(a, b): raise ValueError("\ud800\x00\x1b[2J\n1.0\n" * 50)
=== raises_assertion_errors: raises what a test framework takes for a skipped test
#: from gradecheck
import unittest
def add(a, b):
    if a % 2: raise AssertionError
    raise unittest.SkipTest("not today")
""",
)
