"""The cgroup of programs where the kernel has one bounds them, and programs run in it.

These tests are skipped where this process may make no group with the controllers `memory` and
`pids`: they need cgroups of version 2, handed down as docs/isolation.md says.
"""

from __future__ import annotations

import shutil

import pytest

from guerdon.rewards.code.zygote.cgroup import NoGroupError, ProgramGroup
from tests.code.programs import block, judged, ran

# Four processes, each within its own limit: of 256 MiB, two of 200 MiB are more than all may have.
GREEDY = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 4; i++) {
        pid_t pid = fork();
        if (pid < 0) return 1;
        if (pid == 0) {
            size_t size = (size_t)SIZE << 20;
            char *held = malloc(size);
            if (held == NULL) return 1;
            memset(held, 1, size);
            sleep(5);
            return held[size / 2] != 1;
        }
    }
    int status, failed = 0;
    while (wait(&status) > 0) failed |= status;
    puts(failed ? "failed" : "done");
    return 0;
}
"""


@pytest.fixture(scope="module", autouse=True)
def _kernel_group() -> None:
    try:
        ProgramGroup.make(8).close()
    except NoGroupError as error:
        pytest.skip(str(error))


@pytest.mark.fault(
    "processes of a program take more memory together than it may have, where it is in a cgroup",
    sees="they end together, by SIGKILL: the program is wrong; other programs are not affected",
)
def test_memory_is_bounded_for_all_processes_together() -> None:
    ran("""
        import os, time
        from guerdon.rewards.code.zygote.fence import FenceSpec, prepare
        MIB = 1 << 20
        prepared = prepare(FenceSpec(processes=True, memory_limit=256 * MIB, writable_bytes=MIB))
        assert prepared.layers["cgroup"][0], prepared.layers["cgroup"]

        def take(children, size):
            theirs, ours = os.pipe()
            pid = prepared.fork()
            if pid == 0:
                prepared.enter((0, 1, 2, ours))
                for _ in range(children):
                    if os.fork() == 0:
                        held = b"x" * size
                        os.write(ours, b"x")
                        time.sleep(2)
                        os._exit(0)
                for _ in range(children):
                    os.wait()
                os._exit(0)
            os.close(ours)
            status = os.waitpid(pid, 0)[1]
            held = b"".join(iter(lambda: os.read(theirs, 64), b""))
            os.close(theirs)
            return status, len(held)

        assert take(4, 16 * MIB) == (0, 4)
        status, held = take(4, 150 * MIB)  # each of them is within its own limit
        assert status == 9 and held < 4, (status, held)
        assert take(4, 16 * MIB) == (0, 4), "the group is fit for the next program"
        prepared.close()
    """)


@pytest.mark.fault("a program forks without end, where it is in a cgroup", sees="`fork` fails at the limit")
def test_tasks_are_bounded_for_all_processes_together() -> None:
    # The other bound on them is of all processes of this user together.
    out = ran("""
        import os, time
        from guerdon.rewards.code.zygote.fence import FenceSpec, prepare
        prepared = prepare(FenceSpec(processes=True, tasks=12, without=("limits", "user")))
        assert prepared.layers["cgroup"][0], prepared.layers["cgroup"]
        theirs, ours = os.pipe()
        pid = prepared.fork()
        if pid == 0:
            prepared.enter((0, 1, 2, ours))
            started = 0
            try:
                while started < 100:
                    if os.fork() == 0:
                        time.sleep(100)
                    started += 1
            except BlockingIOError:
                pass
            os.write(ours, bytes([started]))
            time.sleep(100)
        os.close(ours)
        print(os.read(theirs, 1)[0])
        prepared.kill_group()
        assert os.waitpid(pid, 0)[1] == 9
        assert os.read(theirs, 1) == b""
        prepared.close()
    """)
    assert 8 <= int(out) <= 16


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_program_of_many_processes_has_the_memory_of_one() -> None:
    with_room = GREEDY.replace("SIZE", "10")
    without = GREEDY.replace("SIZE", "200")
    cases = [{"stdin": "", "stdout": "done"}]
    # By a command of one's own: programs of the languages that are known start no processes.
    options = {"command": ["sh", "-c", "exec {out}"], "compile": ["cc", "-o", "{out}", "{file}"]}
    with judged(language="c", memory_limit="256MiB", timeout=20, **options) as reward:
        scores = reward(completions=[block(one, "c") for one in (with_room, without, with_room)], cases=[cases] * 3)
        assert scores == [1.0, 0.0, 1.0]
        found = reward._judge.judge({"completion": block(without, "c"), "cases": cases})
        assert "SIGKILL" in found.reason


def test_the_level_names_it() -> None:
    with judged() as reward:
        assert dict(reward.level.held)["cgroup"] == "memory and tasks of all processes together"
