"""The fences of code rewards: every forbidden act is really tried, whichever layer is missing.

What can't be tried on a machine (no root, another processor) is skipped, and said so.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from guerdon.errors import RegistrationError
from guerdon.rewards.code.zygote import acts
from guerdon.rewards.code.zygote.fence import FenceSpec
from guerdon.rewards.code.zygote.fence_probe import ProbeError, probe
from guerdon.rewards.code.zygote.fence_probe import attempts as at_start
from guerdon.rewards.code.zygote.level import LAYERS, Attempt, Level, checked_level
from tests.code import taken_rights
from tests.code.acts import ACTS, attempts, succeeded
from tests.code.taken_rights import as_root

as_docker = pytest.mark.skipif(
    os.geteuid() != 0 or platform.machine() != "x86_64", reason="root's rights and numbers of x86-64 calls"
)


def test_everything_forbidden_is_tried_and_fails() -> None:
    level = probe(FenceSpec())
    assert level.name == "strict"
    assert level.acts >= 12
    assert {name for name, _ in (*level.held, *level.missing)} == set(LAYERS)
    assert {"landlock", "seccomp", "limits"} <= {name for name, _ in level.held}

    assert succeeded(found := attempts(FenceSpec())) == []
    assert sum(act.outcome == "refused" for act in found.acts) > 100
    # An act that fails for a slip of its own would pass for one that was refused.
    slips = ("NameError", "TypeError", "AttributeError", "ImportError", "KeyError", "AssertionError", "ValueError")
    assert [act for act in found.acts if act.detail.startswith(slips)] == []


def test_with_processes_and_other_programs_too() -> None:
    found = attempts(FenceSpec(processes=True, execute=True))
    assert succeeded(found) == []
    outcomes = {act.name: act.outcome for act in found.acts}
    for name in ("leave its session", "leave its process group", "start a process as its parent's child"):
        assert outcomes[name] == "refused"


def test_targets_of_acts_are_made_in_the_temporary_folder_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root of a hardened container can't be written."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = attempts(FenceSpec(), f"import tempfile; assert tempfile.gettempdir() == {str(tmp_path)!r}")
    assert succeeded(found) == []
    assert os.listdir(tmp_path) == []


# The other layers refuse what this one does.
@pytest.mark.parametrize("layer", ["landlock", "user", "capabilities", "pid", "namespaces", "folder", "oom"])
def test_without_one_layer_the_others_hold(layer: str) -> None:
    if layer == "landlock" and not attempts(FenceSpec()).layers["namespaces"][0]:
        pytest.skip("no name spaces here, which would refuse what Landlock does")
    found = attempts(FenceSpec(without=(layer,)))
    assert succeeded(found) == []
    level = checked_level(found.layers, found.acts)
    assert layer in {name for name, _ in level.missing}
    assert layer in str(level).partition("without")[2]


@pytest.mark.fault(
    "code rewards where a layer of the fences is missing that nothing replaces", sees="a refusal that names it"
)
@pytest.mark.parametrize(
    ("layers", "act", "advice"),
    [
        (("seccomp",), "start a process", "seccomp filters"),
        (("limits",), "have more memory than its limit", "limits of resources"),
        (("landlock", "namespaces"), "read the list of users", "Linux 5.13"),
    ],
)
def test_without_what_nothing_replaces_it_is_refused(layers: tuple[str, ...], act: str, advice: str) -> None:
    assert act in succeeded(attempts(FenceSpec(without=layers)))
    found = at_start(FenceSpec(without=layers))  # which tries but a few
    with pytest.raises(RegistrationError, match="does not hold here: a program can") as refused:
        checked_level(found.layers, found.acts)
    for part in (*layers, advice, 'isolation="none"'):
        assert part in str(refused.value)


@as_root
@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        ("NOBODY", ["user"]),
        # Held by Landlock, seccomp and limits alone.
        pytest.param("DOCKER_ROOT", ["pid", "namespaces", "folder"], marks=as_docker),
        pytest.param("DOCKER_USER", ["pid", "namespaces", "folder"], marks=as_docker),
        # There the size of a page is in `/proc` only, which a private root hasn't.
        pytest.param("KERNEL_5_10", ["landlock"], marks=as_docker),
    ],
)
def test_with_fewer_rights_every_act_fails_and_nothing_is_lacking(rights: str, missing: list[str]) -> None:
    found = attempts(FenceSpec(), getattr(taken_rights, rights))
    assert succeeded(found) == []
    assert [layer for layer in missing if found.layers[layer][0]] == []
    as_user = rights in ("NOBODY", "DOCKER_USER")
    if as_user and not all(path.stat().st_mode & 1 for path in Path(os.__file__).parents):
        # This interpreter is root's alone.
        (lacking,) = found.shortcomings
        assert lacking.startswith("import a module of the standard library (ModuleNotFoundError")
    else:
        assert found.shortcomings == ()


@as_docker
def test_root_without_capabilities_is_refused_for_its_threads() -> None:
    """The kernel counts no threads of root, and such a root can't become another user."""
    assert succeeded(attempts(FenceSpec(), taken_rights.BARE_ROOT)) == ["start more threads than its limit"]
    found = at_start(FenceSpec(), taken_rights.BARE_ROOT)
    with pytest.raises(
        RegistrationError, match=r"Missing: user \(root without CAP_SETUID.*run as another user than root"
    ):
        checked_level(found.layers, found.acts)


# Harmless where they succeed, so they may be tried without a fence; not as root all the same.
@as_root
def test_acts_succeed_where_there_is_no_fence() -> None:
    found = attempts(FenceSpec(isolation="none", memory_limit=1 << 34), taken_rights.NOBODY)
    done = set(succeeded(found))
    for act in (
        "read a file of another user that anyone may read",
        "read the list of users",
        "write to another's file",
        "make a file in another's folder",
        "make a hard link to another's file",
        "cut another's file",
        "empty a file by opening it to read",
        "read shared memory of others",
        "signal the trainer",
        "signal another program",
        "signal all processes",
        "signal a thread of the trainer",
        "signal the trainer by a descriptor",
        "read the trainer's limits",
        "choose the trainer's cores",
        "read the trainer's command line",
        "list all processes",
        "start a process",
        "become another program",
        "open a socket: Internet",
        "connect to a port of this machine",
        "connect to an abstract socket",
        "connect to a socket in another's folder",
        "listen on a port",
        "take pages for a large pipe",
        "choose its own cores",
        "have the kernel filter messages",
        "wait for all processors",
        "choose where its memory is",
        "move pages between pipes",
        "move pages into a pipe",
        "type into a terminal",
        "change the trainer's priority",
        "start more threads than its limit",
        "open more files than its limit",
    ):
        assert act in done


@as_root
@pytest.mark.fault("a module of modules= starts threads when it is imported", sees="the same fences as without it")
def test_modules_with_threads_keep_no_layer_away(open_folder: Path) -> None:
    """A user without rights makes name spaces only as the one thread of a process."""
    Path(open_folder, "busy.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(100,), daemon=True).start()"
    )
    setup = f"import sys; sys.path.append({str(open_folder)!r})\n{taken_rights.NOBODY}"
    without, with_threads = (attempts(FenceSpec(modules=modules), setup) for modules in ((), ("busy",)))
    assert succeeded(with_threads) == []
    assert [layer[0] for layer in with_threads.layers.values()] == [layer[0] for layer in without.layers.values()]


def test_more_paths_than_open_files_may_be_readable(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(FenceSpec().open_files)]
    for path in paths:
        path.mkdir()
    found = at_start(FenceSpec(readable=tuple(map(str, paths))))
    assert (succeeded(found), found.shortcomings) == ([], ())


@pytest.mark.fault("a process that tries a forbidden act dies of it", sees="no level: an error that names the act")
def test_an_act_that_ends_its_process_was_not_refused() -> None:
    aborts = (
        "import dataclasses, os; import guerdon.rewards.code.zygote.fence_probe as own; "
        "own.ACTS = (dataclasses.replace(own.ACTS[0], attempt=lambda _: os.abort()),)"
    )
    with pytest.raises(ProbeError, match=r"the process that tried to read a file .* ended: -"):
        at_start(FenceSpec(), aborts)


def test_unfenced_in_words() -> None:
    level = probe(FenceSpec(isolation="none"))
    assert level == Level("none")
    assert str(level) == "none: programs have the rights of this user"


def test_a_refusal_names_some_acts_and_counts_the_others() -> None:
    acts = [Attempt(f"do {number}", ("seccomp",), "succeeded", "") for number in range(7)]
    with pytest.raises(RegistrationError) as refused:
        checked_level({"seccomp": (False, "not on this kernel")}, acts)
    assert "a program can do 0, do 1, do 2, do 3 and 3 acts more." in str(refused.value)
    with pytest.raises(RegistrationError, match=r"a program can do 0\. All layers that should refuse this are there"):
        checked_level({"seccomp": (True, "")}, acts[:1])


@pytest.mark.fault("code rewards where no probe can be started", sees="an error that says why")
def test_a_probe_that_fails_is_no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProbeError, match="no way to go on"):
        attempts(FenceSpec(), "raise RuntimeError('no way to go on')")
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    with pytest.raises(RegistrationError, match="could not be tried here"):
        probe(FenceSpec(cpu_seconds=59))


def test_each_layer_that_refuses_anything_is_tried_at_start() -> None:
    assert {layer for act in acts.ACTS for layer in act.layers} == {layer for act in ACTS for layer in act.layers}
