"""A prelude that fails is the row's fault."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from guerdon import DataError
from guerdon.rewards.code.factory import CodeReward
from tests.code.programs import call, judged, judgement


@pytest.fixture(scope="module")
def behind() -> Iterator[CodeReward]:
    with judged(prelude="before") as reward:
        yield reward


@pytest.mark.fault("the prelude of a row fails where programs run", sees="no score: prelude can't be run")
@pytest.mark.parametrize(
    ("prelude", "message"),
    [
        ("import no_such_module", "prelude can't be run: ModuleNotFoundError"),
        ("raise SystemExit(0)", "prelude can't be run: SystemExit"),
        ("x = '\ud800'", "column 'before' holds half a surrogate pair"),
        ("x = '\0'", "column 'before' holds a null character"),
    ],
)
def test_a_prelude_that_fails_is_no_fault_of_the_program(behind: CodeReward, prelude: str, message: str) -> None:
    cases = [{"stdin": "", "stdout": "1"}], [call("f", expected=1)]
    program = "def f(): return 1\nif __name__ == '__main__': print(1)"
    for case in cases:
        assert judgement(behind, program, cases=case, before="x = 1").score == 1.0
        with pytest.raises(DataError) as raised:
            judgement(behind, program, cases=case, before=prelude)
        assert str(raised.value).startswith(message)
        # Not what the program itself does, nor what it says of the prelude.
        forged = "import os\nfor fd in range(3, 20):\n    try: os.write(fd, b'1Pno')\n    except OSError: pass\n1/0"
        assert judgement(behind, forged, cases=case, before="x = 1").score == 0.0


def test_a_prelude_that_fails_and_that_the_program_continues_is_no_fault_of_it(behind: CodeReward) -> None:
    body = "    return x + 1"
    for first, score in (("import math", 1.0), ("import no_such_module", None)):
        before = f'{first}\ndef f(x):\n    """Add one."""\n'
        if score is None:
            with pytest.raises(DataError, match="prelude can't be run: ModuleNotFoundError"):
                judgement(behind, body, cases=[call("f", 1, expected=2)], before=before)
        else:
            assert judgement(behind, body, cases=[call("f", 1, expected=2)], before=before).score == score
    wrong = judgement(behind, "    return x +", cases=[call("f", 1, expected=2)], before=before.replace(first, ""))
    assert wrong.score == 0.0
    assert "SyntaxError" in wrong.reason
