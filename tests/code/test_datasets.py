"""Rows in the published forms of public data sets, each with a right and a wrong program.

The rows are written for this test; docs/code.md names the sets and where their forms are from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from guerdon import DataError
from guerdon.rewards.code.factory import CodeReward
from tests.code.programs import block, judged, judgement

TWO_SUM = (
    "class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n        seen = {}\n"
    "        for place, one in enumerate(nums):\n            if target - one in seen:\n"
    "                return [seen[target - one], place]\n            seen[one] = place"
)
ADD = "def add(a, b):\n    return a + b"
DOUBLE = "print(int(input()) * 2)"
TYPING = "from typing import *\n"
NODES = """
class ListNode:
    def __init__(self, val=0, next=None):
        self.val = val
        self.next = next
def list_node(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head
def is_same_list(one, other):
    while one and other:
        if one.val != other.val:
            return False
        one, other = one.next, other.next
    return one is None and other is None
class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right
"""
REVERSE = (
    "class Solution:\n    def reverse(self, head):\n        last = None\n        while head:\n"
    "            head.next, last, head = last, head, head.next\n        return last"
)
STACK = (
    "class Stack:\n    def __init__(self):\n        self.items = []\n    def push(self, one):\n        self.items.append(one)\n"
    "    def pop(self):\n        return self.items.pop()"
)
PAIR = (
    "class Pair:\n    def __init__(self, a, b):\n        self.a, self.b = a, b\n"
    "def longest(pairs, n):\n    return max(one.b - one.a for one in pairs)"
)
UNITTEST = (
    "import unittest\nclass TestCases(unittest.TestCase):\n    def setUp(self):\n        self.n = 3\n"
    "    def test_range(self):\n        self.assertEqual(task_func(self.n), [0, 1, 2])\n"
    "    def test_none(self):\n        with self.assertRaises(ValueError):\n            task_func(-1)\n"
)
RANGE = "def task_func(n):\n    if n < 0:\n        raise ValueError('negative')\n    return list(range(n))"

CASES = {
    "LiveCodeBench, a sample with texts": (
        {"inputs": ["[2, 7, 11]\n9", "[3, 3]\n6"], "outputs": ["[0, 1]", "[0, 1]"], "fn_name": "twoSum"},
        TYPING + TWO_SUM,
    ),
    "LiveCodeBench, one argument": (
        {"inputs": ["[[1, 2]]"], "outputs": ["1"], "fn_name": "f"},
        "def f(x): return len(x)",
    ),
    "DeepCoder, LiveCodeBench's with a name": (
        [{"input": "[2, 7]\n9", "output": "[0, 1]", "testtype": "functional", "metadata": {"func_name": "twoSum"}}],
        TYPING + TWO_SUM,
    ),
    "open-r1, function_call": ([{"fn_name": "add", "input": [1, 2], "output": [3], "type": "function_call"}], ADD),
    "open-r1, function_call as text": (
        [{"fn_name": "add", "input": "[1, 2]", "output": "3", "type": "function_call"}],
        ADD,
    ),
    "open-r1, verification_info": (
        {
            "language": "python",
            "test_cases": [{"fn_name": None, "input": "2\n", "output": "4\n", "type": "stdin_stdout"}],
        },
        DOUBLE,
    ),
    "TACO, function": ({"inputs": [[1, 2]], "outputs": [[3]], "fn_name": "add"}, ADD),
    "a list that is expected of an iterator": (
        [{"fn": "f", "args": [[2, 1]], "expected": [2, 1]}],
        "def f(x): yield from x",
    ),
    "a function that asks for large stacks": (
        [{"fn": "f", "args": [], "expected": [1]}],
        (
            "import threading\nthreading.stack_size(512 << 20)\ndef f():\n    found = []\n"
            "    thread = threading.Thread(target=found.append, args=(1,))\n    thread.start()\n    thread.join()\n    return found"
        ),
    ),
    "code_contests": ({"input": ["2\n"], "output": ["4\n"]}, DOUBLE),
}


class Row(NamedTuple):
    tests: str | list[str]
    program: str
    prelude: str = ""
    entry_point: str = ""


TESTS = {
    "KodCode": Row(
        "from solution import add\n\ndef test_small():\n    assert add(1, 2) == 3\n\ndef test_text():\n    assert add('a', 'b') == 'ab'\n",
        ADD,
    ),
    "KodCode, raises": Row(
        "import pytest\nfrom solution import *\ndef test_a():\n    with pytest.raises(TypeError):\n        add(1, 'a')\n    assert add(1, 2) == 3\n",
        ADD,
    ),
    "KodCode, another name": Row(
        "def test_a():\n    from solution import add as plus\n    assert plus(1, 2) == 3\n",
        ADD,
    ),
    "KodCode, parametrize": Row(
        (
            "import pytest\nfrom solution import add\n@pytest.mark.parametrize('a, b, c', [(1, 2, 3), (2, 2, 4)])\n"
            "def test_a(a, b, c):\n    assert add(a, b) == c\n"
        ),
        ADD,
    ),
    "BigCodeBench": Row(UNITTEST, RANGE, entry_point="task_func"),
    "LeetCode": Row(
        "def check(candidate):\n    assert candidate(nums = [3,3],target = 6) == [0,1]\n",
        TWO_SUM,
        TYPING,
        "Solution().twoSum",
    ),
    "LeetCode, ListNode": Row(
        (
            "def check(candidate):\n    assert is_same_list(candidate(head = list_node([1,2,3])), list_node([3,2,1]))\n"
            "    assert is_same_list(candidate(head = list_node(list(range(300)))), list_node(list(range(300))[::-1]))\n"
        ),
        REVERSE,
        NODES,
        "Solution().reverse",
    ),
    "LeetCode, TreeNode": Row(
        "def check(candidate):\n    assert candidate(TreeNode(1, TreeNode(2), TreeNode(3, None, TreeNode(4)))) == 3\n",
        "class Solution:\n    def depth(self, root):\n        return 1 + max(map(self.depth, (root.left, root.right))) if root else 0",
        NODES,
        "Solution().depth",
    ),
    "LeetCode, in place": Row(
        "def check(candidate):\n    nums = [1, 2, 3]\n    candidate(nums, 1)\n    assert nums == [3, 1, 2]\n",
        "class Solution:\n    def rotate(self, nums, k):\n        nums[:] = nums[-k:] + nums[:-k]",
        entry_point="Solution().rotate",
    ),
    "LeetCode, a list in place": Row(
        "def check(candidate):\n    head = ListNode(1, ListNode(2))\n    candidate(head)\n    assert head.next.val == 9\n",
        "class Solution:\n    def change(self, head):\n        head.next.val = 9",
        NODES,
        "Solution().change",
    ),
    "MBPP, a function check": Row(
        ["assert check(70) == False", "assert check(23) == True"], "def check(x):\n    return x == 23"
    ),
    "MBPP, classes": Row(["assert longest([Pair(5, 24), Pair(15, 25)], 2) == 19"], PAIR),
    "MBPP, a tree": Row(
        ["root = Node(1)\nroot.left = Node(2)\nassert total(root) == 3"],
        (
            "class Node:\n    def __init__(self, data):\n        self.data, self.left = data, None\n"
            "def total(root):\n    return root.data + total(root.left) if root else 0"
        ),
    ),
    "MBPP, an iterator": Row(
        ["assert list(add(1, 2)) == [1, 2]", "assert next(add(3, 4)) == 3"],
        "def add(*x):\n    yield from x",
    ),
    "MBPP, endless": Row(
        ["import itertools\nassert list(itertools.islice(add(), 2)) == [0, 1]"],
        "from itertools import count as add",
        entry_point="add",
    ),
    "KodCode, a module": Row("import solution\ndef test_a():\n    assert solution.add(1, 2) == 3\n", ADD),
    "KodCode, methods beside a test": Row(
        "class TestAdd:\n    def setup_method(self, method): self.name = method.__name__\n"
        "    def test_a(self): assert (self.name, add(1, 2)) == ('test_a', 3)\n"
        "    def teardown_method(self, method): assert method.__name__ == 'test_a'\n",
        ADD,
    ),
    "KodCode, runners": Row(
        "import sys, unittest\nclass TestAdd(unittest.TestCase):\n    def test_a(self): self.assertEqual(add(1, 2), 3)\n"
        "unittest.main(argv=[''], exit=False)\nunittest.main()\n",
        ADD,
    ),
    "KodCode, exit": Row("assert add(1, 2) == 3\nexit()", ADD),
    "KodCode, a key that is missing": Row(
        "try:\n    find('a')\nexcept KeyError as error:\n    assert (error.args, str(error)) == (('no a',), \"'no a'\")\n"
        "else:\n    assert False",
        "def find(key):\n    return {}[f'no {key}']",
    ),
    "KodCode, a subclass of a list": Row(
        "stack = Stack()\nstack.push(1)\nstack.push(2)\nassert (stack.pop(), stack.size(), len(stack)) == (2, 1, 1)",
        "class Stack(list):\n    def push(self, one): self.append(one)\n    def size(self): return len(self)",
    ),
    "KodCode, a subclass of a dict": Row(
        "cache = LRUCache(1)\ncache.put(1, 1)\ncache.put(2, 2)\nassert (cache.get(1), cache.get(2)) == (-1, 2)",
        "from collections import OrderedDict\nclass LRUCache(OrderedDict):\n    def __init__(self, size):\n"
        "        super().__init__()\n        self.size = size\n    def get(self, key):\n        return self[key] if key in self else -1\n"
        "    def put(self, key, value):\n        self[key] = value\n        if len(self) > self.size: self.popitem(last=False)",
    ),
    "KodCode, parts that tests change": Row(
        "root = Node(1)\nroot.children.append(Node(2))\nroot.of['a'] = [Node(3)]\nroot.of['a'].append(Node(4))\n"
        "root.counts[0] += 5\nassert total(root) == 15",
        "class Node:\n    def __init__(self, value):\n        self.value, self.children, self.of, self.counts = value, [], {}, [0]\n"
        "def total(node):\n    below = node.children + sum(node.of.values(), [])\n"
        "    return node.value + sum(map(total, below)) + sum(node.counts)",
    ),
    "OpenCodeInstruct": Row(json.dumps(["assert add(1, 2) == 3", "\nassert add(2, 2) == 4"]), ADD),
    "BigCodeBench, seeds": Row(
        "import random\nimport numpy as np\nrandom.seed(42)\nnp.random.seed(1)\nfirst = random.random()\n"
        "random.seed(42)\nnp.random.seed(1)\nassert draw() == first",
        "import random\ndef draw():\n    return random.random()",
    ),
    "calls on threads": Row(
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n"
        "    assert list(pool.map(lambda n: add(n, 1), range(50))) == list(range(1, 51))",
        ADD,
    ),
    "a class with state": Row(["s = Stack()\ns.push(1)\ns.push(2)\nassert s.pop() == 2"], STACK, entry_point="Stack"),
}


@pytest.fixture(scope="module")
def tested() -> Iterator[CodeReward]:
    with judged(check="test", prelude="prelude") as reward:
        yield reward


@pytest.mark.parametrize("name", CASES)
def test_rows_with_cases(every: CodeReward, name: str) -> None:
    cases, right = CASES[name]
    wrong = "print(0)\ndef add(*x): return 0\nf = add\nclass Solution:\n    twoSum = add"
    for given in (cases, json.dumps(cases)):
        assert every(completions=[block(right), block(wrong)], cases=[given] * 2) == [1.0, 0.0]


@pytest.mark.parametrize("name", TESTS)
def test_rows_with_tests(tested: CodeReward, name: str) -> None:
    tests, right, prelude, entry_point = TESTS[name]
    wrong = right.replace("return", "return 7 or").replace("yield", "yield 8; yield").replace("= 9", "= 8")
    wrong = wrong.replace("[-k:]", "[k:]").replace("count", "repeat")
    for program, score in ((right, 1.0), (wrong, 0.0)):
        found = judgement(tested, program, test=tests, prelude=prelude, entry_point=entry_point)
        assert found.score == score, found.reason


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("def test_a(capsys):\n    add(1, 2)\n", "capsys, which are fixtures"),
        (
            "from unittest.mock import patch\ndef test_a():\n    assert add(1, 2) == 3\n",
            "replaces functions of modules",
        ),
        ("import pandas as pd\ndef test_a():\n    assert isinstance(add(1, 2), pd.DataFrame)\n", "asks for the class"),
        ("import asyncio\nasync def test_a():\n    assert [x async for x in add(1, 2)] == [3]", "asynchronously"),
    ],
)
def test_rows_that_can_not_be_judged_have_no_score(tested: CodeReward, tests: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        judgement(tested, ADD, test=tests)


@pytest.mark.parametrize(
    "program",
    [
        "class Always:\n    def __eq__(self, other): return True\n    def __getattr__(self, name): return self\ndef f(x): return Always()",
        "def f(x):\n    x.clear()\n    return []",
    ],
)
def test_objects_of_a_program_and_its_arguments_decide_nothing(tested: CodeReward, program: str) -> None:
    assert judgement(tested, program, test="given = [2, 1]\nassert f(given) == sorted(given)\n").score == 0.0
    assert judgement(tested, program, test="assert abs(f([2]) - 2) < 1e-6\n").score == 0.0
    assert judgement(tested, program, test="assert f([2]) > 1\n").score == 0.0


@pytest.mark.parametrize("inside", ["assert value == 2", "assert value + 1 == 3", "assert value.missing"])
def test_an_object_of_a_program_silences_no_test(tested: CodeReward, inside: str) -> None:
    program = "class Held:\n    def __enter__(self): return 'x'\n    def __exit__(self, *_): return True\ndef f(x): return Held()"
    assert judgement(tested, program, test=f"with f(2) as value:\n    {inside}\n").score == 0.0
