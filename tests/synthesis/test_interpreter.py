"""The second layer: right results, and every way to want too much is counted out."""

import time

import pytest
from hostile_programs import WITHIN

from instella.synthesis.interpreter import run
from instella.synthesis.language import Refused

PROGRAMS = {
    "arithmetic": (
        "def solve(a, b):\n    return (a + b) * 3 - a // 2 + b % 3 - a / 4",
        {"a": 7, "b": 5},
    ),
    "power": ("def solve(a):\n    return a**3 + a**0 + 2 ** -1 + a**0.5 + 1.5**2", {"a": 9}),
    "condition": (
        "def solve(a):\n    if a > 3 and not a == 4:\n        return a\n    elif a == 4 or a < 0:\n"
        "        return 40\n    else:\n        return -a",
        {"a": 4},
    ),
    "chained comparison": ("def solve(a):\n    return 5 if 1 < a <= 3 != 2 else 6", {"a": 3}),
    "for with else": (
        "def solve(n):\n    total = 0\n    for i in range(n):\n        if i == 3:\n"
        "            continue\n        total += i\n    else:\n        total += 100\n    return total",
        {"n": 6},
    ),
    "while with break": (
        "def solve(n):\n    i = 0\n    while True:\n        i += 1\n        if i * i > n:\n"
        "            break\n    return i",
        {"n": 50},
    ),
    "lists": (
        "def solve(n):\n    a = [i * 2 for i in range(n) if i % 2]\n    a[0] = 7\n    a.append(1)\n"
        "    x, (y, z) = 1, (2, 3)\n    return sum(a) + a[-1] + len(a[1:3]) + x + y * z",
        {"n": 9},
    ),
    "dicts": (
        "def solve(n):\n    d = {'a': n, 'b': 2}\n    d['c'] = 5\n    d['a'] += 1\n    total = 0\n"
        "    for key, value in d.items():\n        total += value if key != 'b' else 10 * value\n"
        "    return total + d.get('x', 7) + len(d.keys()) + max(d.values())",
        {"n": 4},
    ),
    "functions": (
        "RATE = 3\ndef double(x, by=2):\n    return x * by * RATE\n"
        "def solve(a):\n    return double(a) + double(x=a, by=5)",
        {"a": 2},
    ),
    "recursion": (
        "def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)\ndef solve(n):\n    return f(n)",
        {"n": 10},
    ),
    "math": (
        "import math\nfrom math import ceil, pi\ndef solve(a):\n    return math.floor(pi * a) + ceil(a / 3)"
        " + math.gcd(12, 18) + math.factorial(5) + math.comb(5, 2) + math.sqrt(16) + math.prod([2, 3])",
        {"a": 10},
    ),
    "builtins": (
        "def solve(a):\n    pairs = list(zip([3, 1, 2], range(3)))\n    q, r = divmod(17, a)\n"
        "    return sum(x * i for i, (x, y) in enumerate(sorted(pairs))) + q * r + abs(-a) + "
        "round(2.675, 2) + round(7 / 2) + int(3.9) + float(1) + min(a, 2) + pow(2, 5) + "
        "all([1, a]) + any([0]) + len(tuple(reversed([1, 2])))",
        {"a": 5},
    ),
    "none and text": (
        "def f(x: int = None) -> int:\n    '''Text.'''\n    y: int = 3\n"
        "    return 1 if x is None else y\n"
        "def solve():\n    s = 'ab' + 'c' * 2\n    return f() + f(2) + len(s) + ('b' in s)",
        {},
    ),
    "two loops": (
        "def solve(n):\n    return sum(a * b for a in range(n) for b in range(a))",
        {"n": 6},
    ),
    "float steps": (
        "def solve(a):\n    total = 0.1\n    for i in range(9):\n        total += a\n    return total",
        {"a": 0.1},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_python(name: str) -> None:
    source, arguments = PROGRAMS[name]
    names: dict = {}
    exec(source, names)
    expected = names["solve"](**arguments)
    found = run(source, arguments)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def solve():\n    return 1 / 0", ZeroDivisionError),
        ("def solve():\n    return 0 ** -1", ZeroDivisionError),
        ("def solve():\n    return [1][2]", IndexError),
        ("def solve():\n    return {1: 2}[3]", KeyError),
        ("def solve():\n    return 1 + 'a'", TypeError),
        ("def solve():\n    return 1[0]", TypeError),
        ("def solve():\n    a, b = 1, 2, 3\n    return a", ValueError),
        ("def solve():\n    if 0:\n        x = 1\n    return x", NameError),
        ("def solve(a):\n    return a", TypeError),
        ("def solve():\n    a = 1\n    return a(2)", TypeError),
    ],
)  # fmt: skip
def test_a_program_s_own_fault_has_its_name(source: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        run(source, {})


@pytest.mark.parametrize("name", WITHIN)
def test_too_much_is_refused_by_counting(name: str) -> None:
    started = time.process_time()
    with pytest.raises((Refused, RecursionError)):
        run(WITHIN[name], {})
    assert time.process_time() - started < 20


def test_the_step_budget_is_exact() -> None:
    """A round costs seven steps, whatever the machine: loop, comparison and its two names,
    assignment, name and constant; four more stand around them."""
    source = "def solve(n):\n    i = 0\n    while i < n:\n        i += 1\n    return i"

    most = 28_570
    assert run(source, {"n": most}) == most
    with pytest.raises(Refused, match="too many operations"):
        run(source, {"n": most + 1})
