"""``cluster="host"`` as an option of a dispatcher, in one process."""

from __future__ import annotations

import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from guerdon import Dispatcher, Ray, reward
from guerdon._lanes.remote.shared_engine import greeting
from guerdon._system.cpu_count import host_cores, host_workers
from guerdon.errors import RegistrationError


@reward
def length(text: str) -> float:
    return float(len(text))


@reward
async def length_here(text: str) -> float:
    return float(os.getpid())


@reward(lane="thread", node="any")
def process_of_thread(text: str) -> float:
    print(f"scoring {text}", flush=True)
    return float(os.getpid())


@reward(node="any")
async def process_of_loop(text: str) -> float:
    return float(os.getpid())


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is left where engines are met."""
    made = tmp_path_factory.mktemp("o")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(made))
    monkeypatch.setenv("GUERDON_RUN_ID", made.name)
    monkeypatch.setenv("GUERDON_TOP", "0")
    return made


def test_it_stays_with_copies() -> None:
    dispatcher = Dispatcher([length], cluster="host", workers=3)
    for other in (pickle.loads(pickle.dumps(dispatcher)), copy.copy(dispatcher), dispatcher.replace(workers=3)):
        assert (other.options["cluster"], other.workers) == ("host", 3)
    assert dispatcher.replace(cluster=None).options["cluster"] is None
    assert repr(dispatcher) == "<Dispatcher of length (process); cluster='host', 3 workers, not started>"


def test_other_values_are_refused() -> None:
    with pytest.raises(RegistrationError, match="cluster='hosts'"):
        Dispatcher([length], cluster="hosts")  # type: ignore[arg-type]
    for meant in ("ray", Ray):
        with pytest.raises(RegistrationError, match=r"Write guerdon\.Ray\(\)"):
            Dispatcher([length], cluster=meant)  # type: ignore[arg-type]


def test_a_dump_names_the_engine() -> None:
    with Dispatcher([length], cluster="host") as dispatcher:
        dispatcher.score(completions=["a"])
        dump = dispatcher.dump()
        (node,) = dispatcher.stats()["nodes"]
    assert dump.nodes == {node: ("ready", 0)}
    assert f"\n{node}: ready, has 0 calls of this dispatcher" in str(dump)
    assert node.startswith("the engine of this host, process ")


def test_the_cores_of_the_host_are_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert Dispatcher([length], cluster="host").workers == host_workers() == len(host_cores())
    assert Dispatcher([length]).workers == max(1, host_workers() // 2)


def test_functions_of_other_lanes_stay(folder: Path) -> None:
    with Dispatcher([length_here], cluster="host") as dispatcher:
        assert dispatcher.score(completions=["a"]).rewards.tolist() == [[[float(os.getpid())]]]
        assert dispatcher.stats()["nodes"] == {}
    assert not (folder / "guerdon").exists()


def test_functions_of_other_lanes_with_any_node_run_in_the_engine(capfd: pytest.CaptureFixture[str]) -> None:
    functions = [length, process_of_thread, process_of_loop]
    with Dispatcher(functions, cluster="host", workers=1) as dispatcher:
        result = dispatcher.score(completions=["a", "b"], num_generations=2)
        (name,) = dispatcher.stats()["nodes"]
        process = float(name.rsplit(" ", 1)[1])
        assert process != os.getpid()
        assert result.rewards.tolist() == [[[1.0, process, process], [1.0, process, process]]]
    out, err = capfd.readouterr()
    assert (out, sorted(err.split("scoring ")[1:])) == ("", ["a\n", "b\n"])


@pytest.mark.fault(
    "a function that runs in the shared engine itself (node='any') cannot be loaded there",
    sees="one warning with function and reason; it runs in its rank",
)
def test_a_function_that_the_engine_cannot_load_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "refuses.py").write_text(
        "import os\nif os.getpid() != int(os.environ['ONLY_IN']):\n    raise ImportError('not in this process')\n"
        "def score(completion):\n    return float(os.getpid())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ONLY_IN", str(os.getpid()))
    score = reward(__import__("refuses").score, lane="thread", node="any")
    with Dispatcher([score], cluster="host", workers=1) as dispatcher:
        with pytest.warns(match="'score' .*could not be loaded in the agent: ImportError: not in this process"):
            result = dispatcher.score(completions=["a"])
        assert result.rewards.tolist() == [[[float(os.getpid())]]]


@pytest.mark.fault(
    "the engine that a host's ranks share is of another version of guerdon, whose messages are others",
    sees="workers of its own, with one warning that names both",
)
def test_an_engine_of_another_protocol_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with Dispatcher([length], cluster="host", workers=2) as first:
        assert first.score(completions=["abc"]).rewards.tolist() == [[[3.0]]]
        monkeypatch.setattr(greeting, "PROTOCOL", 2)
        with Dispatcher([length], cluster="host", workers=2) as second, pytest.warns(match="protocol 2, this one 1"):
            assert second.score(completions=["abcd"]).rewards.tolist() == [[[4.0]]]


def test_sixty_four_connections() -> None:
    dispatchers = [Dispatcher([length], cluster="host", workers=2) for _ in range(64)]
    texts = ["x" * size for size in range(8)]
    try:
        with ThreadPoolExecutor(16) as pool:
            results = list(pool.map(lambda one: one.score(completions=texts).rewards.ravel().tolist(), dispatchers))
        assert results == [[float(size) for size in range(8)]] * 64
        assert len({name for one in dispatchers for name in one.stats()["nodes"]}) == 1
    finally:
        for one in dispatchers:
            one.close()
