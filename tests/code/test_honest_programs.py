"""The fences leave honest programs what they need, or an error says so at the start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from guerdon import RegistrationError
from guerdon.rewards.code.factory import CodeReward
from guerdon.rewards.code.zygote import fence_probe
from guerdon.rewards.code.zygote.fence import FenceSpec
from guerdon.rewards.code.zygote.fence_probe import attempts as at_start
from guerdon.rewards.code.zygote.fence_probe import probe
from guerdon.rewards.code.zygote.tasks import most_others
from tests.code import taken_rights
from tests.code.acts import attempts, succeeded
from tests.code.programs import block, judged, ran
from tests.code.taken_rights import as_root


@pytest.mark.fault("code rewards are made by root with a strict umask", sees="the same scores as without it")
@pytest.mark.parametrize("mask", [0o077, 0o777])
def test_a_strict_umask_changes_nothing(mask: int) -> None:
    printed = ran(f"""
        import os
        os.umask({mask})
        from guerdon import code_reward
        program = "import sqlite3, difflib, os\\nopen('x', 'w').write('2')\\nprint(open('x').read(), os.umask(0))"
        with_umask = code_reward()
        level = dict(with_umask.level.held)
        cases = [[{{"stdin": "", "stdout": "2 18"}}]]
        print("folder" in level, with_umask(completions=[f"```python\\n{{program}}\\n```"], cases=cases))
        with_umask.close()
    """)
    assert printed in ("True [1.0]\n", "False [0.0]\n")


def test_nothing_is_lacking_on_this_machine() -> None:
    for spec in (FenceSpec(modules=("json", "sqlite3")), FenceSpec(processes=True, execute=True), FenceSpec(tasks=1)):
        assert at_start(spec).shortcomings == ()


@as_root
@pytest.mark.fault(
    "a module of modules= holds files that only root may read, and programs have another user",
    sees="an error that names the module and what to do",
)
def test_a_module_that_programs_cannot_read_is_named(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = open_folder / "closed_within"
    (package / "part").mkdir(parents=True)
    for name in ("__init__.py", "part/__init__.py"):
        (package / name).write_text("")
    (package / "part").chmod(0o700)
    setup = f"import sys; sys.path.append({str(open_folder)!r})"
    found = at_start(FenceSpec(modules=("closed_within",)), setup)
    if not found.layers["user"][0]:
        pytest.skip("programs have this user")
    (lacking,) = found.shortcomings
    assert lacking.startswith("read the files of modules='closed_within' (PermissionError")
    assert f"chmod -R o+rX {package}" in lacking
    monkeypatch.setattr(fence_probe, "attempts", lambda spec: found)
    with pytest.raises(RegistrationError, match="none can read the files of modules='closed_within'"):
        probe.__wrapped__(FenceSpec())


def test_modules_are_found_where_the_trainer_finds_them(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs get nothing else of a folder that PYTHONPATH or a .pth file names."""
    package = open_folder / "found_beside"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 7")
    (package / ".#editing.py").symlink_to("nowhere")
    (open_folder / "another_module.py").write_text("")
    (open_folder / "answers.txt").write_text("42")
    monkeypatch.syspath_prepend(str(open_folder))
    programs = {
        "import found_beside\nprint(found_beside.VALUE)": 1,
        f"import pathlib\nprint(7)\npathlib.Path({str(open_folder)!r}, 'answers.txt').read_text()": 0,
        # A module that is not listed is not there, rather than closed.
        "try:\n    import another_module\nexcept ModuleNotFoundError:\n    print(7)": 1,
    }
    with judged(modules=["found_beside"]) as reward:
        cases = [[{"stdin": "", "stdout": "7"}]] * len(programs)
        assert reward(completions=[block(each) for each in programs], cases=cases) == list(programs.values())


@as_root
def test_a_package_that_is_closed_to_others_leaves_programs_the_user(open_folder: Path) -> None:
    """Root installs it so with umask 027."""
    (open_folder / "closed_package").mkdir(mode=0o750)
    (open_folder / "closed_package" / "__init__.py").write_text("")
    (open_folder / "__pycache__").mkdir(mode=0o700)
    setup = f"import site; site.getsitepackages = lambda: [{str(open_folder)!r}]"
    found = attempts(FenceSpec(), setup)
    assert found.layers["user"] == (False, f"{open_folder}/closed_package is closed to other users")
    assert succeeded(found) == []
    assert found.shortcomings == ()
    (open_folder / "closed_package").chmod(0o755)
    assert at_start(FenceSpec(), setup).layers["user"][0]


@pytest.mark.parametrize("others", [0, 1, 47, 48, 49, 300, 5000, 1 << 21])
def test_room_for_tasks_of_others_is_found_by_trying(others: int) -> None:
    tried: list[int] = []

    def starts(room: int) -> bool:
        tried.append(room)
        return room >= others

    found = most_others(starts)
    assert found is not None
    assert others <= found <= others + 64 if others else found == 0
    assert len(tried) < 30
    assert most_others(lambda room: False) is None


@as_root
@pytest.mark.fault(
    "others have the programs' user, and are not seen (containers of one machine)", sees="room is left for them"
)
def test_tasks_of_others_that_are_not_seen_take_none_of_a_programs(open_folder: Path) -> None:
    """The program has a name space of processes, as in a container; the others are outside."""
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no interpreter that another user may run")
    printed = ran(f"""
        import ctypes, os, subprocess, sys, time
        exec({taken_rights.NOBODY.split("os.setgroups")[0]!r})
        libc = ctypes.CDLL(None, use_errno=True)
        user = 54321
        others = "import threading, time\\nthreading.stack_size(65536)\\n" \\
            "[threading.Thread(target=time.sleep, args=(60,), daemon=True).start() for _ in range(200)]\\n" \\
            "print(1, flush=True)\\ntime.sleep(60)"
        busy = subprocess.Popen(["/usr/bin/python3", "-c", others], user=user, group=user, stdout=subprocess.PIPE, cwd="/")
        busy.stdout.read(1)
        assert libc.unshare(0x20000000 | 0x20000) == 0  # processes and mounts
        pid = os.fork()
        if pid == 0:
            libc.mount(None, b"/", None, 0x44000, None)
            assert libc.mount(b"proc", b"/proc", b"proc", 0, None) == 0
            import threading
            from guerdon.rewards.code.zygote.fence import FenceSpec, prepare
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            libc.prctl(4, 1, 0, 0, 0)
            prepared = prepare(FenceSpec(tasks=16, without=("namespaces", "pid")))
            child = prepared.fork()
            if child == 0:
                prepared.enter((0, 1, 2))
                threading.stack_size(65536)
                started = 0
                try:
                    while started < 500:
                        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
                        started += 1
                except RuntimeError:
                    pass
                os.write(1, str(started).encode())
                os._exit(0)
            os.waitpid(child, 0)
            os._exit(0)
        os.waitpid(pid, 0)
        busy.kill()
        busy.wait()
    """)
    assert 15 <= int(printed) <= 96


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
@pytest.mark.fault("the compiler of a language works for no program", sees="a failure that quotes it; no score")
def test_a_compiler_that_does_not_work_is_no_fault_of_a_program() -> None:
    program = block('#include <stdio.h>\nint main(void) { puts("2"); }', "c")
    cases = [[{"stdin": "", "stdout": "2"}]]
    broken = ["gcc", "-nostdinc", "-o", "{out}", "{file}"]
    with judged(language="c", command=["{out}"], compile=broken) as reward:
        with pytest.raises(RegistrationError, match=r"language='c' does not work here.*stdlib.h|math.h"):
            reward._judge.setup()
        assert reward(completions=[program], cases=cases) == [None]
    with (
        judged(language="c", command=["sh", "-c", "echo x; {out}"], compile=["gcc", *broken[2:]]) as reward,
        pytest.raises(RegistrationError, match="it printed 'x"),
    ):
        reward._judge.setup()
    with judged(language="c") as reward:
        reward._judge.setup()
        assert reward(completions=[program], cases=cases) == [1.0]


def test_databases_lock_their_own_files(every: CodeReward) -> None:
    """They use `fcntl`; a journal and a shared index are files beside them."""
    program = """
import dbm, fcntl, sqlite3, threading
for mode in ("delete", "wal", "memory"):
    one, other = (sqlite3.connect("data", timeout=0, check_same_thread=False) for _ in range(2))
    one.execute(f"pragma journal_mode={mode}")
    one.execute("create table if not exists numbers (n)")
    one.execute("begin immediate")
    try:
        other.execute("begin immediate")
    except sqlite3.OperationalError as error:
        print(error)
    one.close()
    other.close()
with dbm.open("names", "c") as names:
    names["a"] = "1"
with open("own", "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("done")
"""
    printed = "database is locked\n" * 3 + "done"
    if "folder" not in dict(every.level.held):
        pytest.skip("programs have no folder here")
    found = every._judge.judge({"completion": block(program), "cases": [{"stdin": "", "stdout": printed}]})
    assert (found.score, found.reason) == (1.0, "")
