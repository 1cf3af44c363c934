"""Runs a checked program step by step: no ``exec``, no Python frame of the program's own.

A program sees numbers, texts, lists, tuples, dicts and ranges, and nothing of the process
around it. Every step is counted, so what is too much is too much on every machine.
"""

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from instella.synthesis.language import BUILTINS, Program, Refused, check
from instella.synthesis.operations import (
    BINARY,
    COMPARE,
    FUNCTIONS,
    MATH_FUNCTIONS,
    UNARY,
    Budget,
    checked,
)

MAX_CALLS_DEEP = 40
MAX_ANSWER = 10**15
# With keys that a program chose to collide a look-up passes all of them, uncounted.
MAX_KEYS = 1000

Scope = dict[str, Any]

# What a program may do wrong in itself, as against what the language refuses.
FAILURES = (ArithmeticError, IndexError, KeyError, NameError, TypeError, ValueError)


@dataclass(frozen=True)
class Returned:
    """A function's value on its way out."""

    value: Any


class Jump:
    """``break`` or ``continue`` on its way out."""


BREAK, CONTINUE = Jump(), Jump()
Signal = Returned | Jump | None


def run(source: str, arguments: Mapping[str, int | float], function: str = "solve") -> int | float:
    """Value of ``function(**arguments)`` in the program ``source``.

    Raises:
        Refused: beyond the language or its limits, or no usable number as a result.
        ArithmeticError, IndexError, KeyError, NameError, TypeError, ValueError: the
            program's own fault (``FAILURES``).
    """
    interpreter = Interpreter(check(source))
    value = interpreter.call(function, [], dict(arguments))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refused(f"the result is no number but {type(value).__name__}")
    if not math.isfinite(value) or abs(value) > MAX_ANSWER:
        raise Refused("the result is too large")
    return value


class Interpreter:
    """One run of one program."""

    def __init__(self, program: Program) -> None:
        self._functions = program.functions
        self._budget = Budget()
        self._globals: Scope = {}
        self._imported: set[str] = set()
        self._depth = 0
        for node in program.constants:
            if isinstance(node, ast.ImportFrom):
                self._imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.Assign):
                self._execute(node, self._globals)

    def call(self, name: str, values: list[Any], words: Scope) -> Any:
        """Call a function of the program."""
        if name not in self._functions:
            raise Refused(f"there is no function {name}")
        node = self._functions[name]
        self._depth += 1
        if self._depth > MAX_CALLS_DEEP:
            raise Refused(f"calls nested deeper than {MAX_CALLS_DEEP}")
        signal = self._block(node.body, self._bind(node, values, words))
        self._depth -= 1
        return signal.value if isinstance(signal, Returned) else None

    def _bind(self, node: ast.FunctionDef, values: list[Any], words: Scope) -> Scope:
        names = [argument.arg for argument in node.args.args]
        defaults = node.args.defaults
        first = len(names) - len(defaults)
        scope: Scope = {
            name: value.value
            for name, value in zip(names[first:], defaults, strict=True)
            if isinstance(value, ast.Constant)
        }
        if len(values) > len(names):
            raise TypeError("too many arguments")
        given = dict(zip(names, values, strict=False))
        if set(words) & set(given) or not set(words) <= set(names):
            raise TypeError("a wrong argument")
        scope |= given | words
        if set(scope) != set(names):
            raise TypeError("an argument is missing")
        return scope

    # Statements.

    def _block(self, body: list[ast.stmt], scope: Scope) -> Signal:
        for node in body:
            signal = self._execute(node, scope)
            if signal is not None:
                return signal
        return None

    def _execute(self, node: ast.stmt, scope: Scope) -> Signal:
        self._budget.charge()
        match node:
            case ast.Return():
                return Returned(None if node.value is None else self._value(node.value, scope))
            case ast.Assign():
                value = self._value(node.value, scope)
                for target in node.targets:
                    self._assign(target, value, scope)
            case ast.AnnAssign():
                if node.value is not None:
                    self._assign(node.target, self._value(node.value, scope), scope)
            case ast.AugAssign():
                self._augment(node, scope)
            case ast.If():
                return self._block(self._branch(node, scope), scope)
            case ast.For() | ast.While():
                return self._loop(node, scope)
            case ast.Break():
                return BREAK
            case ast.Continue():
                return CONTINUE
            case ast.Expr():
                self._value(node.value, scope)
            case ast.Pass():
                pass
            case _:
                raise Refused(f"{type(node).__name__} is not allowed")
        return None

    def _branch(self, node: ast.If, scope: Scope) -> list[ast.stmt]:
        return node.body if self._value(node.test, scope) else node.orelse

    def _loop(self, node: ast.For | ast.While, scope: Scope) -> Signal:
        for _ in self._rounds(node, scope):
            self._budget.charge()
            signal = self._block(node.body, scope)
            if signal is BREAK:
                return None
            if isinstance(signal, Returned):
                return signal
        return self._block(node.orelse, scope)

    def _rounds(self, node: ast.For | ast.While, scope: Scope) -> Iterator[None]:
        if isinstance(node, ast.While):
            while self._value(node.test, scope):
                yield
            return
        for item in self._items(self._value(node.iter, scope)):
            self._assign(node.target, item, scope)
            yield

    def _items(self, value: Any) -> list[Any]:
        """The items of a value, counted; a copy, so that a loop cannot feed itself."""
        if not isinstance(value, (list, tuple, dict, range, str)):
            raise TypeError("not iterable")
        self._budget.charge(len(value))
        return list(value)

    def _augment(self, node: ast.AugAssign, scope: Scope) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            old = self._value(ast.Name(target.id, ast.Load()), scope)
        elif isinstance(target, ast.Subscript):
            old = self._value(ast.Subscript(target.value, target.slice, ast.Load()), scope)
        else:
            raise Refused("an attribute may not be set")
        new = self._binary(type(node.op).__name__, old, self._value(node.value, scope))
        self._assign(target, new, scope)

    def _assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name():
                scope[target.id] = value
            case ast.Tuple() | ast.List():
                items = self._items(value)
                if len(items) != len(target.elts):
                    raise ValueError("a wrong number of values to unpack")
                for inner, item in zip(target.elts, items, strict=True):
                    self._assign(inner, item, scope)
            case ast.Subscript():
                holder = self._value(target.value, scope)
                place = self._value(target.slice, scope)
                self._budget.weigh(place)
                if not isinstance(holder, (list, dict)) or isinstance(place, slice):
                    raise TypeError("items cannot be set here")
                holder[place] = value
                if isinstance(holder, dict) and len(holder) > MAX_KEYS:
                    raise Refused(f"a dict of more than {MAX_KEYS} keys")
            case _:
                raise Refused("an attribute may not be set")

    # Expressions.

    def _value(self, node: ast.expr, scope: Scope) -> Any:
        self._budget.charge()
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._name(node.id, scope)
            case ast.BinOp():
                left, right = self._value(node.left, scope), self._value(node.right, scope)
                return self._binary(type(node.op).__name__, left, right)
            case ast.UnaryOp():
                operand = self._value(node.operand, scope)
                return checked(UNARY[type(node.op).__name__](operand))
            case ast.BoolOp():
                return self._logical(node, scope)
            case ast.Compare():
                return self._compare(node, scope)
            case ast.IfExp():
                chosen = node.body if self._value(node.test, scope) else node.orelse
                return self._value(chosen, scope)
            case ast.List():
                return [self._value(item, scope) for item in node.elts]
            case ast.Tuple():
                return tuple([self._value(item, scope) for item in node.elts])
            case ast.Dict():
                return self._dict(node, scope)
            case ast.Subscript():
                return self._subscript(node, scope)
            case ast.ListComp() | ast.GeneratorExp():
                self._budget.charge(len(scope))
                return list(self._comprehension(node.elt, node.generators, dict(scope)))
            case ast.Call():
                return checked(self._call(node, scope))
            case ast.Attribute(attr="pi", value=ast.Name(id="math")):
                return math.pi
            case _:
                raise Refused(f"{type(node).__name__} has no value here")

    def _name(self, name: str, scope: Scope) -> Any:
        for place in (scope, self._globals):
            if name in place:
                return place[name]
        if name == "pi" and name in self._imported:
            return math.pi
        if name in self._functions or name in BUILTINS:
            raise Refused("a function is no value")
        raise NameError(name)

    def _binary(self, name: str, left: Any, right: Any) -> Any:
        self._budget.weigh(left)
        self._budget.weigh(right)
        result = checked(BINARY[name](left, right))
        if isinstance(result, (str, list, tuple)):
            self._budget.charge(len(result))
        return result

    def _logical(self, node: ast.BoolOp, scope: Scope) -> Any:
        stops = isinstance(node.op, ast.Or)
        value: Any = None
        for item in node.values:
            value = self._value(item, scope)
            if bool(value) == stops:
                break
        return value

    def _compare(self, node: ast.Compare, scope: Scope) -> bool:
        left = self._value(node.left, scope)
        for operator, item in zip(node.ops, node.comparators, strict=True):
            right = self._value(item, scope)
            if isinstance(operator, (ast.Is, ast.IsNot)):
                if right is not None:
                    raise Refused("is compares with None only")
                holds = (left is None) == isinstance(operator, ast.Is)
            else:
                self._budget.weigh(left)
                self._budget.weigh(right)
                holds = bool(COMPARE[type(operator).__name__](left, right))
            if not holds:
                return False
            left = right
        return True

    def _dict(self, node: ast.Dict, scope: Scope) -> Any:
        result = {}
        for key, item in zip(node.keys, node.values, strict=True):
            if key is None:
                raise Refused("** is not allowed")
            name = self._value(key, scope)
            self._budget.weigh(name)
            result[name] = self._value(item, scope)
        return result

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        holder = self._value(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            edges = (node.slice.lower, node.slice.upper, node.slice.step)
            low, high, step = [None if e is None else self._value(e, scope) for e in edges]
            self._budget.weigh(holder)
            if not isinstance(holder, (list, tuple, str)):
                raise TypeError("cannot be sliced")
            return holder[low:high:step]
        place = self._value(node.slice, scope)
        self._budget.weigh(place)
        if not isinstance(holder, (list, tuple, str, dict, range)):
            raise TypeError("has no items")
        return holder[place]

    def _comprehension(
        self, item: ast.expr, generators: list[ast.comprehension], scope: Scope
    ) -> Iterator[Any]:
        first, *others = generators
        for value in self._items(self._value(first.iter, scope)):
            self._budget.charge()
            self._assign(first.target, value, scope)
            if not all(self._value(test, scope) for test in first.ifs):
                continue
            if others:
                yield from self._comprehension(item, others, scope)
            else:
                yield self._value(item, scope)

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        words = {word.arg: self._value(word.value, scope) for word in node.keywords if word.arg}
        holder, name = None, ""
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "math":
                return self._builtin(MATH_FUNCTIONS, name, node, words, scope)
            holder = self._value(node.func.value, scope)
            return self._method(holder, name, [self._value(item, scope) for item in node.args])
        if isinstance(node.func, ast.Name):
            name = node.func.id
        if name in scope or name in self._globals:
            raise TypeError("a value is called")
        if name in self._functions:
            return self.call(name, [self._value(item, scope) for item in node.args], words)
        table = MATH_FUNCTIONS if name in self._imported else FUNCTIONS
        return self._builtin(table, name, node, words, scope)

    def _builtin(
        self, table: Mapping[str, Any], name: str, node: ast.Call, words: Scope, scope: Scope
    ) -> Any:
        if name not in table:
            raise Refused("no such function")
        if words:
            raise Refused("a function of the language takes no named argument")
        values = [self._value(item, scope) for item in node.args]
        for value in values:
            # A range is lazy only where it is made; whatever reads it pays for all of it.
            self._budget.weigh(value)
        return table[name](*values)

    def _method(self, holder: Any, name: str, values: list[Any]) -> Any:
        for value in values:
            self._budget.weigh(value)
        if name == "append" and isinstance(holder, list) and len(values) == 1:
            holder.append(values[0])
            return None
        if isinstance(holder, dict) and name == "get" and len(values) in (1, 2):
            return holder.get(*values)
        if isinstance(holder, dict) and name in ("items", "keys", "values") and not values:
            self._budget.charge(len(holder))
            return list(getattr(holder, name)())
        raise TypeError("no such method here")
