"""Functions serialized for workers, loaded by a new interpreter that has nothing else."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from guerdon import StatefulReward, reward
from guerdon._functions.build import spec_of
from guerdon._functions.serialization.function_pickler import dumps
from guerdon._functions.serialization.importable import importable
from guerdon._functions.serialization.serialized_functions import check_serializable, serialize
from tests.serialization.making_functions import Scorer, by_value, closes_over, holds_lock, refused

LOADER = """
import importlib, json, pickle, sys
serialized, calls = pickle.load(sys.stdin.buffer)
content = pickle.loads(serialized)
sys.path[:] = content["sys_path"]
results = []
for entry, arguments in zip(content["functions"], calls):
    kind, *where = entry["target"]
    if kind == "value":
        target = pickle.loads(where[0])
    else:
        target = importlib.import_module(where[0])
        for part in where[1].split("."):
            target = getattr(target, part)
        target = getattr(target, "__guerdon_target__", target)
    call = target.score if entry["recipe"]["stateful"] else target
    results.append(call(*arguments))
print(json.dumps({"results": results, "modules": sorted(sys.modules)}))
"""


def in_another_process(*items: Any) -> dict[str, Any]:
    """Each item's result for "abc" in a new interpreter, and the modules that it then has."""
    sent = pickle.dumps((serialize([spec_of(item) for item in items]), [("abc",)] * len(items)))
    done = subprocess.run([sys.executable, "-c", LOADER], input=sent, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def target_of(item: Any) -> Any:
    data = serialize([spec_of(item)])
    assert data is not None
    return pickle.loads(data)["functions"][0]["target"]


FACTOR = 2.0


@reward
def decorated(completion: str) -> float:
    return len(completion) * FACTOR


def plain(completion: str) -> float:
    return len(completion) * FACTOR


class Keyword(StatefulReward):
    def __init__(self, word: str) -> None:
        self.word = word

    def score(self, text: str) -> float:
        return float(self.word in text)


def test_importable_functions_travel_as_names() -> None:
    module = __name__
    assert target_of(decorated) == ("ref", module, "decorated")
    assert target_of(reward(plain)) == ("ref", module, "plain")
    assert target_of(reward(Scorer.static, name="s")) == ("ref", Scorer.__module__, "Scorer.static")
    answer = in_another_process(decorated, reward(plain), reward(Scorer.static))
    assert answer["results"] == [6.0, 6.0, 7.0]


def test_all_other_kinds_travel_by_value() -> None:
    factor = 3.0
    items = [
        reward(lambda completion: len(completion) * factor),
        reward(functools.partial(lambda scale, completion: len(completion) * scale, 4.0)),
        reward(Scorer(5.0)),
        reward(Scorer(6.0).method),
        Keyword("b"),
        reward(Keyword("z"), name="other"),
        reward(functools.partial(plain)),
        reward(functools.partial(decorated.__wrapped__)),
    ]
    for item in items:
        assert target_of(item)[0] == "value"
    assert in_another_process(*items)["results"] == [9.0, 12.0, 15.0, 18.0, 1.0, 0.0, 6.0, 6.0]


def test_functions_of_main_travel_by_value_with_what_they_use() -> None:
    score = by_value(
        """
        import re
        SCALE = 2.0
        def helper(text):
            return len(re.findall("[a-z]", text))
        class KeptValue:
            times = 3
        def score(completion, kept=KeptValue()):
            return helper(completion) * SCALE * kept.times
        """
    )
    assert in_another_process(reward(score))["results"] == [18.0]


def test_a_decorated_function_of_main_travels_as_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it calls itself or another decorated one; loading doesn't import guerdon."""
    score = by_value(
        """
        @reward
        def length(completion):
            return float(len(completion))
        @reward(name="again")
        def score(completion):
            return 1.0 + score(completion[1:]) if completion else length("four")
        """,
        reward=reward,
    )
    monkeypatch.setattr(sys.modules["__main__"], "score", score, raising=False)
    assert pickle.loads(pickle.dumps(score)) is score
    answer = in_another_process(score)
    assert answer["results"] == [7.0]
    assert not [name for name in answer["modules"] if name.partition(".")[0] == "guerdon"]


def test_a_decorated_reward_travels_inside_another_function() -> None:
    source = "class Local(StatefulReward):\n    def score(self, text): return 4.0"
    keyword = reward(by_value(source, "Local", StatefulReward=StatefulReward)())
    answer = in_another_process(reward(lambda completion: keyword(completion) + decorated(completion)))
    assert answer["results"] == [10.0]


def test_a_cached_function_of_main_travels_with_its_cache_settings() -> None:
    score = by_value(
        """
        import functools
        @functools.lru_cache(maxsize=17)
        def slow(text):
            return len(text)
        def score(completion):
            return float(slow(completion) + slow.cache_parameters()["maxsize"])
        """
    )
    assert in_another_process(reward(score))["results"] == [20.0]
    assert in_another_process(reward(score.__globals__["slow"], name="slow"))["results"] == [3]


def load_by_path(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_a_module_that_was_loaded_by_path_travels_by_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cloudpickle alone would send a name that no worker can import."""
    path = tmp_path / "my_rewards.py"
    source = """
    from guerdon import reward
    class Table:
        def __init__(self): self.values = {"abc": 4.0}
    TABLE = Table()
    def helper(text): return TABLE.values[text]
    @reward
    def score(completion): return helper(completion)
    """
    path.write_text(textwrap.dedent(source))
    module = load_by_path(path, "my_rewards", monkeypatch)
    assert not importable("my_rewards")
    assert target_of(module.score)[0] == "value"
    assert in_another_process(module.score)["results"] == [4.0]
    assert "my_rewards" not in cloudpickle.list_registry_pickle_by_value()
    # A function elsewhere that merely uses such a module as a whole.
    assert in_another_process(reward(lambda completion: module.helper(completion)))["results"] == [4.0]
    # On the search path under that name, it is a name again; another file of that name is not.
    monkeypatch.syspath_prepend(tmp_path)
    assert importable("my_rewards")
    assert target_of(module.score) == ("ref", "my_rewards", "score")
    other = tmp_path / "other"
    other.mkdir()
    (other / "my_rewards.py").write_text("score = None\n")
    monkeypatch.syspath_prepend(other)
    assert not importable("my_rewards")


def test_importable_functions_are_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("made_up")
    monkeypatch.setitem(sys.modules, "made_up", made)
    others = "cloudpickle.cloudpickle", "guerdon._functions.spec", __name__
    for name in ("json", "json.decoder", "os.path", "builtins", *others):
        assert importable(name), name
    for name in ("__main__", "__mp_main__", "made_up", "made_up.sub", "not_loaded_at_all"):
        assert not importable(name), name


def test_only_functions_of_the_process_lane_are_serialized() -> None:
    lock = threading.Lock()
    thread = spec_of(reward(closes_over(lock), lane="thread"))
    check_serializable(thread)
    assert serialize([thread]) is None
    data = serialize([thread, spec_of(decorated)])
    assert data is not None
    functions = pickle.loads(data)["functions"]
    assert functions[0] is None
    assert functions[1]["recipe"]["name"] == "decorated"
    # A function of an importable module may use what can't be pickled: it isn't pickled.
    check_serializable(spec_of(reward(holds_lock)))


def test_search_path_and_main_module_are_serialized(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "lib", *sys.path])
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "train.py", raising=False)
    data = serialize([spec_of(decorated)])
    assert data is not None
    content = pickle.loads(data)
    assert content["sys_path"][:2] == [str(tmp_path), str(tmp_path / "lib")]
    assert content["main_path"] == str(tmp_path / "train.py")


def test_a_value_is_pickled_once_and_stays_as_it_was() -> None:
    keyword = Keyword("a")
    spec = spec_of(keyword)
    check_serializable(spec)
    keyword.word = "b"
    data = serialize([spec])
    assert data is not None
    assert pickle.loads(pickle.loads(data)["functions"][0]["target"][1]).word == "a"
    again = pickle.loads(serialize([spec_of(keyword)]) or b"")
    assert pickle.loads(again["functions"][0]["target"][1]).word == "b"


def test_a_failed_pickle_leaves_no_module_registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "broken_rewards.py"
    path.write_text("import threading\nLOCK = threading.Lock()\ndef score(completion): return LOCK\n")
    module = load_by_path(path, "broken_rewards", monkeypatch)
    with pytest.raises(TypeError, match="cannot pickle"):
        dumps(module.score)
    assert cloudpickle.list_registry_pickle_by_value() == set()
    assert "the global 'LOCK'" in refused(reward(module.score))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_arrays_and_tensors_travel_in_closures(kind: str) -> None:
    library = pytest.importorskip(kind)
    weights = library.arange(4)
    assert in_another_process(reward(lambda completion: float(weights.sum())))["results"] == [6.0]


def test_a_child_forked_while_a_function_is_pickled_can_pickle() -> None:
    started, end = threading.Event(), threading.Event()

    class Waits:
        def __reduce__(self) -> Any:
            started.set()
            end.wait(30)
            return int, ()

    thread = threading.Thread(target=dumps, args=(Waits(),))
    thread.start()
    try:
        assert started.wait(30)
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)  # ends a child that waits for the lock
            os._exit(0 if pickle.loads(dumps([1])) == [1] else 1)
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        end.set()
        thread.join()
