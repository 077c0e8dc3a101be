"""The cgroup of programs writes and removes its files, in a folder that looks like a group.

`test_kernel_cgroup.py` tests the real groups of a machine that has them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from guerdon.rewards.code.zygote import cgroup
from guerdon.rewards.code.zygote.cgroup import NoGroupError, ProgramGroup
from tests.code.programs import ran

FILES = ("cgroup.procs", "cgroup.kill", "memory.max", "memory.oom.group", "memory.swap.max", "pids.max")


def make_folder(path: str) -> None:
    """Makes the files that the kernel makes for a new group."""
    os.makedirs(path)
    for name in FILES:
        Path(path, name).touch()


def remove_folder(path: str, folder: int | None = None) -> bool:
    shutil.rmtree(path if folder is None else f"/proc/self/fd/{folder}/{path}")
    return True


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of groups with this process in one at the second level."""
    (tmp_path / "user" / "own").mkdir(parents=True)
    for place in ("", "user", "user/own"):
        (tmp_path / place / "cgroup.subtree_control").write_text("")
    monkeypatch.setattr(cgroup, "_ROOT", str(tmp_path))
    monkeypatch.setattr(cgroup, "_own", lambda: "/user/own")
    monkeypatch.setattr(cgroup, "_remove", remove_folder)
    monkeypatch.setattr(cgroup, "_make", make_folder)
    return tmp_path


def refuse(path: str) -> None:
    raise PermissionError(13, "Permission denied", path)


def groups(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.startswith("guerdon-programs-"))


@pytest.mark.parametrize("place", ["user", "user/own"])
def test_it_is_made_where_the_controllers_are(tree: Path, place: str) -> None:
    (tree / place / "cgroup.subtree_control").write_text("cpu memory pids\n")
    made = ProgramGroup.make(68)
    made.limit(512 << 20)
    (group,) = groups(tree / place)
    written = {name: (group / name).read_text() for name in FILES}
    assert written == {
        "cgroup.procs": "",
        "cgroup.kill": "",
        "memory.max": str(512 << 20),
        "memory.oom.group": "1",
        "memory.swap.max": "0",
        "pids.max": "68",
    }
    made.join()
    made.kill()
    assert (group / "cgroup.procs").read_text() == "0"
    assert (group / "cgroup.kill").read_text() == "1"
    made.close()
    assert groups(tree / place) == []


@pytest.mark.fault("a zygote is killed, so that its cgroup is left", sees="the next zygote removes it; others stay")
def test_leftovers_are_removed_but_not_files_in_use(tree: Path) -> None:
    (tree / "user" / "cgroup.subtree_control").write_text("memory pids")
    make_folder(str(tree / "user" / "guerdon-programs-1-00"))
    make_folder(str(tree / "user" / "another"))
    first = ProgramGroup.make(8)
    second = ProgramGroup.make(8)
    assert len(groups(tree / "user")) == 2
    assert (tree / "user" / "another").exists()
    first.close()
    second.close()
    assert groups(tree / "user") == []


@pytest.mark.fault("no cgroup may be made for programs", sees="a level without that layer, and why; programs run")
@pytest.mark.parametrize(
    ("controllers", "mkdir", "reason"),
    [
        ("cpu pids", make_folder, "no cgroup of version 2 with the controllers memory and pids"),
        ("memory pids", refuse, "Permission denied"),
        ("memory pids", lambda path: os.makedirs(path), "No such file or directory: .*cgroup.procs"),
    ],
)
def test_missing_cgroup_gives_the_reason(
    tree: Path, monkeypatch: pytest.MonkeyPatch, controllers: str, mkdir: Callable[[str], None], reason: str
) -> None:
    (tree / "user" / "cgroup.subtree_control").write_text(controllers)
    monkeypatch.setattr(cgroup, "_make", mkdir)
    with pytest.raises(NoGroupError, match=reason):
        ProgramGroup.make(8)
    assert groups(tree / "user") == []


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        (("user",), r"not handed down by \S+/user/cgroup.subtree_control: it must name '\+memory \+pids'"),
        (("user/own",), r"not handed down by \S+/user/own/cgroup.subtree_control: it must name"),
        (("user", "user/own"), r"by \S+/user/cgroup.subtree_control or \S+/user/own/cgroup.subtree_control: one of"),
    ],
)
def test_controllers_that_are_not_handed_down_are_reported(tree: Path, places: tuple[str, ...], reason: str) -> None:
    for place in places:
        (tree / place / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids\n")
    with pytest.raises(NoGroupError, match=reason):
        ProgramGroup.make(8)


def test_children_are_in_it_and_it_is_bounded_once_modules_are_there(tree: Path) -> None:
    (tree / "user" / "cgroup.subtree_control").write_text("memory pids")
    code = f"""
        import os
        from guerdon.rewards.code.zygote import cgroup
        from guerdon.rewards.code.zygote.fence import FenceSpec, prepare
        from tests.code.test_cgroup import groups, make_folder, remove_folder
        from pathlib import Path
        cgroup._ROOT, cgroup._own = {str(tree)!r}, lambda: "/user/own"
        cgroup._make, cgroup._remove = make_folder, remove_folder
        prepared = prepare(FenceSpec(without=("namespaces", "pid")))
        assert prepared.layers["cgroup"] == (True, "memory and tasks of all processes together")
        (group,) = groups(Path({str(tree / "user")!r}))
        joined = (group / "cgroup.procs").read_text()
        assert set(joined) == {{"0"}}, "children that tried it"
        pid = prepared.fork()
        if pid == 0:
            prepared.enter((0, 1, 2))
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        prepared.kill_group()
        read = {{name: (group / name).read_text() for name in ("cgroup.procs", "cgroup.kill", "pids.max", "memory.max")}}
        assert int(read.pop("memory.max")) > (512 + 64) << 20
        assert read == {{"cgroup.procs": joined + "0", "cgroup.kill": "1", "pids.max": "68"}}, read
        prepared.close()
        assert not group.exists()
        """
    ran(code)


def _mounted() -> str | None:
    """The mount of groups of version 2 where this user may make one, whatever its controllers."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        place = before.split()[4]
        if after.startswith("cgroup2 ") and os.access(place, os.W_OK) and Path(place, "cgroup.procs").exists():
            return place
    return None


@pytest.mark.skipif(_mounted() is None, reason="no group of version 2 may be made here")
@pytest.mark.fault("a program leaves processes behind, where it is in a cgroup", sees="they end with it")
def test_a_real_group_without_controllers_holds_and_ends_all_processes() -> None:
    # A root of its own: what another run on this machine makes and removes is not in it.
    root = Path(str(_mounted()), f"guerdon-test-{os.getpid()}")
    root.mkdir()
    code = f"""
        import os, time
        from guerdon.rewards.code.zygote import cgroup
        from guerdon.rewards.code.zygote.fence import FenceSpec, prepare
        cgroup._ROOT, cgroup._own, cgroup._NEEDED = {str(root)!r}, lambda: "", frozenset()
        cgroup._FILES = ("cgroup.procs", "cgroup.kill", "cgroup.max.depth")
        cgroup._write = lambda path, value: None
        os.mkdir(os.path.join(cgroup._ROOT, "guerdon-programs-left"))
        prepared = prepare(FenceSpec(processes=True, without=("pid",)))
        assert prepared.layers["cgroup"][0], prepared.layers["cgroup"]
        theirs, ours = os.pipe()
        pid = prepared.fork()
        if pid == 0:
            prepared.enter((0, 1, 2, ours))
            os.fork()
            os.fork()
            os.write(ours, b"x")
            time.sleep(100)
        os.close(ours)
        started = 0
        while started < 4:
            started += len(os.read(theirs, 4))
        prepared.kill_group()
        assert os.read(theirs, 1) == b"", "the end of the last of them"
        assert os.waitpid(pid, 0)[1] == 9
        prepared.close()
        """
    try:
        ran(code)
        assert [path for path in root.iterdir() if path.is_dir()] == []
    finally:
        root.rmdir()
