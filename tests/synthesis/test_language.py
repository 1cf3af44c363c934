"""The first layer alone: what is not in the language never starts."""

import pytest
from hostile_programs import OUTSIDE

from instella.synthesis.language import Refused, check

BEYOND = {
    "async comprehension": "def solve(a):\n    return [x async for x in a]",
    "attribute of a number": "def solve(a):\n    return a.real",
    "attribute is set": "def solve(a):\n    a.b = 1\n    return 1",
    "method without a call": "def solve(a):\n    return a.append",
    "method of text": "def solve():\n    return len('{}'.format(1))",
    "call of a call": "def solve():\n    return solve()()",
    "starred": "def solve(*a):\n    return 1",
    "double star": "def solve(**a):\n    return 1",
    "star in a call": "def solve(a):\n    return max(*a)",
    "double star in a call": "def solve(a):\n    return solve(**a)",
    "double star in a dict": "def solve(a):\n    return len({**a})",
    "set": "def solve():\n    return len({1, 2})",
    "bytes": "def solve():\n    return len(b'x')",
    "complex": "def solve():\n    return 1j",
    "shift": "def solve():\n    return 1 << 100",
    "global": "def solve():\n    global x\n    x = 1\n    return x",
    "nonlocal function": "def solve():\n    def f():\n        return 1\n    return f()",
    "yield": "def solve():\n    yield 1",
    "with": "def solve(a):\n    with a:\n        return 1",
    "delete": "def solve(a):\n    del a\n    return 1",
    "raise": "def solve():\n    raise ValueError",
    "match": "def solve(a):\n    match a:\n        case 1:\n            return 1",
    "import as": "import math as m\ndef solve():\n    return m.pi",
    "import inside": "def solve():\n    import math\n    return math.pi",
    "import all": "from math import *\ndef solve():\n    return 1",
    "import of another part": "from math import exp\ndef solve():\n    return exp(1)",
    "relative import": "from . import math\ndef solve():\n    return 1",
    "underscore": "def solve(_a):\n    return _a",
    "dunder": "def solve():\n    return __name__",
    "builtin anew": "def max(a):\n    return a\ndef solve():\n    return max(1)",
    "function as value": "def solve():\n    solve = 1\n    return solve",
    "statement outside": "while True:\n    pass\ndef solve():\n    return 1",
    "expression outside": "print(1)\ndef solve():\n    return 1",
    "not Python": "def solve(:\n    return 1",
    "form feed": "def solve():\n    return 1\x0c",
    "print": "def solve():\n    print(1)\n    return 1",
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_hostile_programs_are_refused_before_they_run(name: str) -> None:
    with pytest.raises(Refused):
        check(OUTSIDE[name])


@pytest.mark.parametrize("name", BEYOND)
def test_the_language_ends_where_it_says(name: str) -> None:
    with pytest.raises(Refused):
        check(BEYOND[name])


def test_a_refusal_names_the_line() -> None:
    with pytest.raises(Refused, match=r"^line 2: a name that is neither defined here nor"):
        check("def solve():\n    return nothing")
