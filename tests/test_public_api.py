"""What users may build on: the modules, and the attributes of each public class. The exported names
are those of docs/api (tests/test_docs.py)."""

from __future__ import annotations

import inspect
import pkgutil

import pytest

import guerdon
from guerdon import Dispatcher, Dump, reward

MODULES = {"errors", "functions", "judges", "limits", "panels", "parse"}
PACKAGES = {"cli", "dispatcher", "integrations", "profile", "results", "rewards", "testing"}

_PENDING = {"agroups", "aresult", "cancel", "completed", "done", "groups", "num_groups", "result", "wait"}
ATTRIBUTES = {
    "Dispatcher": {
        *("ascore", "ascore_one", "close", "closed", "dump", "endpoints", "names", "options", "replace"),
        *("reward_funcs", "reward_models", "reward_weights", "score", "stats", "stream", "submit"),
        *("worker_pids", "workers"),
    },
    "Dump": {"count", "endpoints", "index", "nodes", "throttled", "waiting", "workers"},
    "Endpoint": {"address", "answered", "breaker", "deferred", "failed", "in_flight", "ip", "p50_s", "weight"},
    "Endpoints": {"count", "index", "list", "set"},
    "Failure": {"attempts", "function", "queue_s", "reason", "run_s", "sample", "status", "traceback"},
    "Group": {"index", "rewards", "status"},
    "InFlight": {
        *("age_s", "attempt", "batch", "function", "lane", "no_stack", "phase", "samples", "stack", "worker"),
    },
    "Journal": {"columns", "folder", "rotate", "run", "texts"},
    "Limit": {"concurrency", "key", "rpm", "tokens", "tpm"},
    "OpenBatch": {*_PENDING, "aadd", "add", "finish", "open"},
    "PendingBatch": _PENDING,
    "Ray": {"address", "cpus_per_node", "idle_timeout", "nodes", "reserve", "start_timeout"},
    "Recycle": {"age", "calls", "rss", "rss_bytes"},
    "ReplayResult": {
        *("differences", "failures", "functions", "groups", "incomplete", "journal", "moved", "notes", "rows"),
        *("samples", "to_dict", "tolerance", "total"),
    },
    "Cache": {"folder", "size"},
    "Votes": {"by", "count", "min_agreement"},
    "Trace": {"bytes", "file", "path", "shortest", "size"},
    "RewardBatch": {
        *("advantages", "attempts", "elapsed_s", "tail_s", "extra", "failed_samples", "failures", "functions"),
        *("incomplete", "metrics", "queue_s", "rewards", "run_s", "skipped", "status", "timings", "to_dicts"),
        *("to_pandas", "to_torch", "total", "unscorable", "usage", "weights"),
    },
    "RewardFunction": {"name", "options", "spec"},
    "Rubric": {"columns", "name", "weights"},
    "SampleResult": {"reasons", "rewards", "status", "total"},
    "SandboxFusion": {"language", "server", "wait"},
    "Server": {
        *("api_key", "api_key_env", "api_key_file", "base_url", "ca_file", "ca_only", "client_cert", "client_key"),
        *("headers", "hedge_after", "hedge_share", "http2", "max_cost", "price", "resolve"),
    },
    "StatefulReward": {"close", "setup"},
    "Status": {"ABSTAINED", "CANCELLED", "CRASHED", "ERROR", "OK", "SKIPPED", "TIMEOUT", "label"},
}


def test_the_public_modules_are_these() -> None:
    found = {module.name: module.ispkg for module in pkgutil.iter_modules(guerdon.__path__)}
    public = {name for name in found if not name.startswith("_")}
    assert {name for name in public if found[name]} == PACKAGES
    assert {name for name in public if not found[name]} == MODULES


def _public(names: object) -> set[str]:
    return {name for name in names if not name.startswith("_")}  # type: ignore[attr-defined]


def test_the_public_classes_are_these() -> None:
    classes = {name for name in guerdon.__all__ if inspect.isclass(getattr(guerdon, name))}
    assert {name for name in classes if not issubclass(getattr(guerdon, name), BaseException)} == set(ATTRIBUTES)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_the_public_attributes_are_these(name: str) -> None:
    """They are those of an instance if the test has one, else of the class and its fields."""
    function = reward(lambda text: 1.0, name="one", lane="thread")
    kind = getattr(guerdon, name)
    found = _public(dir(kind)) | _public(getattr(kind, "__annotations__", ()))
    with Dispatcher([function]) as dispatcher:
        made = {
            "Dispatcher": lambda: dispatcher,
            "Dump": lambda: Dump((), {}, ()),
            "OpenBatch": dispatcher.stream,
            "PendingBatch": lambda: dispatcher.submit(completions=["a"]),
            "RewardBatch": lambda: dispatcher.score(completions=["a"]),
            "RewardFunction": lambda: function,
            "Rubric": lambda: guerdon.rubric({"a": "b"}, base_url="http://localhost:1/v1", model="m"),
        }
        found |= _public(vars(made[name]()) if name in made else ())
    if name == "Status":
        found -= _public(dir(int))
        found.add("label")
    assert found == ATTRIBUTES[name]


def test_exported_names_are_there_and_a_native_reward_shows_two() -> None:
    assert {name for name in guerdon.__all__ if getattr(guerdon, name) is not None} <= set(dir(guerdon))
    for made in (guerdon.rewards.exact_match(), guerdon.rewards.math_reward()):
        assert _public(dir(made)) == {"name", "spec"}
