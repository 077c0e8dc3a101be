"""What users may build on: the export list, the modules, and the attributes of each public
class."""

from __future__ import annotations

import inspect
import pkgutil

import pytest

import guerdon
from guerdon import Dispatcher, Dump, reward

PUBLIC = {
    "Cache",
    "ClosedError",
    "DataError",
    "Dispatcher",
    "Dump",
    "Endpoint",
    "Endpoints",
    "Failure",
    "Group",
    "GuerdonError",
    "GuerdonWarning",
    "InFlight",
    "Journal",
    "Limit",
    "MainGuardError",
    "OpenBatch",
    "PendingBatch",
    "QuietRewardWarning",
    "Ray",
    "Recycle",
    "RegistrationError",
    "ReplayResult",
    "RetryAfter",
    "RewardBatch",
    "RewardFailureError",
    "RewardFunction",
    "Rubric",
    "SampleResult",
    "SandboxFusion",
    "SerializationError",
    "Server",
    "StatefulReward",
    "Status",
    "ToolError",
    "Trace",
    "Votes",
    "__version__",
    "code_reward",
    "group_reward",
    "http_reward",
    "judge",
    "pairwise",
    "panel",
    "parse",
    "read_journal",
    "replay",
    "reward",
    "rewards",
    "rubric",
}

MODULES = {"errors", "functions", "judges", "limits", "panels", "parse"}
PACKAGES = {"cli", "dispatcher", "integrations", "profile", "results", "rewards", "testing"}

_PENDING = {"agroups", "aresult", "cancel", "completed", "done", "groups", "num_groups", "result", "wait"}
ATTRIBUTES = {
    "Dispatcher": {
        "ascore",
        "ascore_one",
        "close",
        "closed",
        "dump",
        "endpoints",
        "names",
        "options",
        "replace",
        "reward_funcs",
        "reward_models",
        "reward_weights",
        "score",
        "stats",
        "stream",
        "submit",
        "worker_pids",
        "workers",
    },
    "Dump": {"count", "endpoints", "index", "nodes", "waiting", "workers"},
    "Endpoint": {"address", "answered", "breaker", "failed", "in_flight", "ip", "p50_s", "weight"},
    "Endpoints": {"count", "index", "list", "set"},
    "Failure": {"attempts", "function", "queue_s", "reason", "run_s", "sample", "status", "traceback"},
    "Group": {"index", "rewards", "status"},
    "InFlight": {
        "age_s",
        "attempt",
        "batch",
        "function",
        "lane",
        "no_stack",
        "phase",
        "samples",
        "stack",
        "worker",
    },
    "Journal": {"columns", "folder", "rotate", "run", "texts"},
    "Limit": {"concurrency", "key", "rpm", "tokens", "tpm"},
    "OpenBatch": {*_PENDING, "aadd", "add", "finish", "open"},
    "PendingBatch": _PENDING,
    "Ray": {"address", "cpus_per_node", "idle_timeout", "nodes", "reserve", "start_timeout"},
    "Recycle": {"age", "calls", "rss", "rss_bytes"},
    "ReplayResult": {
        "differences",
        "failures",
        "functions",
        "groups",
        "incomplete",
        "journal",
        "moved",
        "notes",
        "rows",
        "samples",
        "to_dict",
        "tolerance",
        "total",
    },
    "Cache": {"folder", "size"},
    "Votes": {"by", "count", "min_agreement"},
    "Trace": {"bytes", "file", "path", "shortest", "size"},
    "RewardBatch": {
        "advantages",
        "attempts",
        "elapsed_s",
        "tail_s",
        "extra",
        "failed_samples",
        "failures",
        "functions",
        "incomplete",
        "metrics",
        "queue_s",
        "rewards",
        "run_s",
        "skipped",
        "status",
        "timings",
        "to_dicts",
        "to_pandas",
        "to_torch",
        "total",
        "unscorable",
        "usage",
        "weights",
    },
    "RewardFunction": {"name", "options", "spec"},
    "Rubric": {"columns", "name", "weights"},
    "SampleResult": {"reasons", "rewards", "status", "total"},
    "SandboxFusion": {"language", "server", "wait"},
    "Server": {
        *("api_key_env", "api_key_file", "base_url", "ca_file", "ca_only", "client_cert", "client_key", "headers"),
        *("hedge_after", "hedge_share", "http2", "max_cost", "price", "resolve"),
    },
    "StatefulReward": {"close", "setup"},
    "Status": {"ABSTAINED", "CANCELLED", "CRASHED", "ERROR", "OK", "SKIPPED", "TIMEOUT", "label"},
}


def test_the_public_names_are_these() -> None:
    assert set(guerdon.__all__) == PUBLIC
    assert set(dir(guerdon)) >= PUBLIC
    for name in PUBLIC:
        assert getattr(guerdon, name) is not None


def test_the_public_modules_are_these() -> None:
    found = {module.name: module.ispkg for module in pkgutil.iter_modules(guerdon.__path__)}
    public = {name for name in found if not name.startswith("_")}
    assert {name for name in public if found[name]} == PACKAGES
    assert {name for name in public if not found[name]} == MODULES


REWARDS = {
    "KernelOptions",
    "MathReward",
    "NativeReward",
    "SchemaReward",
    "bleu",
    "cosine_length",
    "edit_distance",
    "exact_match",
    "ifeval",
    "json_schema",
    "math_equal",
    "math_reward",
    "multiple_choice",
    "normalized_match",
    "repetition_penalty",
    "rouge_l",
    "soft_overlong",
    "squad_em",
    "squad_f1",
    "tag_count",
    "think_format",
}


def test_the_public_rewards_are_these() -> None:
    assert set(guerdon.rewards.__all__) == REWARDS
    assert _public(dir(guerdon.rewards.exact_match())) == {"name", "spec"}
    assert _public(dir(guerdon.rewards.math_reward())) == {"name", "spec"}


def _public(names: object) -> set[str]:
    return {name for name in names if not name.startswith("_")}  # type: ignore[attr-defined]


def test_the_public_classes_are_these() -> None:
    classes = {name for name in PUBLIC if inspect.isclass(getattr(guerdon, name))}
    assert {name for name in classes if not issubclass(getattr(guerdon, name), BaseException)} == set(ATTRIBUTES)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_the_public_attributes_are_these(name: str) -> None:
    """Of an instance where there is one at hand, else of the class and its fields."""
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
