"""The part of Python that a program may be written in, checked before anything runs.

Programs are functions over numbers: assignments, arithmetic, comparisons, conditions, loops,
lists, dicts, comprehensions, calls of each other and of the functions named here. There is
no import but ``math``, no attribute but those named here, no class, lambda, exception,
generator, decorator or format string; whatever is not listed is refused.
"""

import ast
import re
from dataclasses import dataclass

MAX_CHARACTERS = 4000
MAX_NODES = 2000
MAX_DEPTH = 30
MAX_TEXT = 1000
MAX_BITS = 4096
"""Largest whole number, in bits; also bounds literals."""

BUILTINS = frozenset(
    [
        "abs", "all", "any", "bool", "divmod", "enumerate", "float", "int", "len", "list", "max",
        "min", "pow", "range", "reversed", "round", "sorted", "sum", "tuple", "zip",
    ]
)  # fmt: skip
MATH = frozenset(
    [
        "ceil", "comb", "fabs", "factorial", "floor", "gcd", "isqrt", "lcm", "pi", "prod", "sqrt",
        "trunc",
    ]
)  # fmt: skip
METHODS = frozenset(["append", "get", "items", "keys", "values"])
TYPES = frozenset(["bool", "dict", "float", "int", "list", "str", "tuple"])

_NAME = re.compile(r"(?:[A-Za-z][A-Za-z0-9_]{0,63}|_)", re.ASCII)
_CONSTANTS = (bool, int, float, str, type(None))
_NODES = frozenset(
    [
        ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Import,
        ast.ImportFrom, ast.alias, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.For,
        ast.While, ast.Break, ast.Continue, ast.Pass, ast.Expr, ast.Constant, ast.Name,
        ast.Attribute, ast.Call, ast.keyword, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare,
        ast.IfExp, ast.List, ast.Tuple, ast.Dict, ast.Subscript, ast.Slice, ast.ListComp,
        ast.GeneratorExp, ast.comprehension, ast.Load, ast.Store, ast.Add, ast.Sub, ast.Mult,
        ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UAdd, ast.USub, ast.Not, ast.And, ast.Or,
        ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is,
        ast.IsNot,
    ]
)  # fmt: skip


class Refused(Exception):
    """Beyond the language or its limits: the same verdict on every machine."""


@dataclass(frozen=True)
class Program:
    """A checked program: its functions by name, and what stands outside them."""

    functions: dict[str, ast.FunctionDef]
    constants: tuple[ast.stmt, ...]


def check(source: str) -> Program:
    """The program, if it is written in the language.

    Raises:
        Refused: with the first reason, and its line where there is one.
    """
    _check_text(source)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"not Python: {type(error).__name__}") from None
    _check_size(tree)
    for node in ast.walk(tree):
        _check_node(node)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    others = tuple(node for node in tree.body if not isinstance(node, ast.FunctionDef))
    _check_places(tree, functions, others)
    _check_names(tree, functions)
    return Program(functions, others)


def _check_text(source: str) -> None:
    if len(source) > MAX_CHARACTERS:
        raise Refused(f"longer than {MAX_CHARACTERS} characters")
    if any(not (letter.isprintable() or letter in "\n\t") for letter in source):
        raise Refused("a control character")
    depth = 0
    for letter in source:
        depth += (letter in "([{") - (letter in ")]}")
        if depth > MAX_DEPTH:
            raise Refused(f"nested deeper than {MAX_DEPTH}")


def _check_size(tree: ast.Module) -> None:
    level: list[ast.AST] = [tree]
    count = depth = 0
    while level:
        count, depth = count + len(level), depth + 1
        if count > MAX_NODES:
            raise Refused(f"more than {MAX_NODES} nodes")
        if depth > MAX_DEPTH:
            raise Refused(f"nested deeper than {MAX_DEPTH}")
        level = [child for node in level for child in ast.iter_child_nodes(node)]


def _refuse(node: ast.AST, what: str) -> Refused:
    return Refused(f"line {getattr(node, 'lineno', 1)}: {what}")


def _check_node(node: ast.AST) -> None:
    if type(node) not in _NODES:
        raise _refuse(node, f"{type(node).__name__} is not allowed")
    if isinstance(node, ast.Constant):
        _check_constant(node)
    elif isinstance(node, ast.FunctionDef):
        _check_function(node)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        _check_import(node)
    elif isinstance(node, ast.Call):
        _check_call(node)
    elif isinstance(node, ast.comprehension) and node.is_async:
        raise _refuse(node.target, "async is not allowed")
    elif isinstance(node, ast.Dict) and None in node.keys:
        raise _refuse(node, "** is not allowed")
    elif isinstance(node, (ast.arg, ast.AnnAssign)):
        _check_annotation(node, node.annotation)


def _check_constant(node: ast.Constant) -> None:
    value = node.value
    if type(value) not in _CONSTANTS:
        raise _refuse(node, f"a {type(value).__name__} is not allowed")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise _refuse(node, f"a text longer than {MAX_TEXT} characters")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise _refuse(node, f"a number of more than {MAX_BITS} bits")


def _check_function(node: ast.FunctionDef) -> None:
    arguments = node.args
    if node.decorator_list:
        raise _refuse(node, "a decorator is not allowed")
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
        raise _refuse(node, "only plain parameters are allowed")
    if not all(isinstance(value, ast.Constant) for value in arguments.defaults):
        raise _refuse(node, "a default must be a constant")
    if node.name in BUILTINS or node.name == "math":
        raise _refuse(node, f"{node.name} may not be defined anew")
    _check_name(node, node.name)
    _check_annotation(node, node.returns)


def _check_annotation(node: ast.AST, annotation: ast.expr | None) -> None:
    plain = isinstance(annotation, ast.Name) and annotation.id in TYPES
    if annotation is not None and not plain:
        raise _refuse(node, f"an annotation must be one of {', '.join(sorted(TYPES))}")


def _check_import(node: ast.Import | ast.ImportFrom) -> None:
    names = [alias.name for alias in node.names]
    if any(alias.asname for alias in node.names):
        raise _refuse(node, "import ... as is not allowed")
    if isinstance(node, ast.Import) and names != ["math"]:
        raise _refuse(node, "only math may be imported")
    if isinstance(node, ast.ImportFrom):
        if node.level or node.module != "math":
            raise _refuse(node, "only math may be imported")
        unknown = sorted(set(names) - MATH)
        if unknown:
            raise _refuse(node, f"math.{unknown[0]} is not allowed")


def _check_call(node: ast.Call) -> None:
    if any(word.arg is None for word in node.keywords):
        raise _refuse(node, "** is not allowed")
    if not isinstance(node.func, (ast.Name, ast.Attribute)):
        raise _refuse(node, "only a named function may be called")


def _check_name(node: ast.AST, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise _refuse(node, "a name is a letter, then letters, digits and _")


def _check_places(
    tree: ast.Module, functions: dict[str, ast.FunctionDef], others: tuple[ast.stmt, ...]
) -> None:
    defined = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if len(defined) != len(functions):
        raise Refused("a function inside a function, or two of one name")
    for statement in others:
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_text and not isinstance(statement, (ast.Import, ast.ImportFrom, ast.Assign)):
            raise _refuse(statement, "only functions and constants may stand outside a function")
    top = {id(node) for node in others}
    imports = (ast.Import, ast.ImportFrom)
    if any(isinstance(node, imports) and id(node) not in top for node in ast.walk(tree)):
        raise Refused("import stands at the top")
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            _check_attribute(node, id(node) in called)


def _check_attribute(node: ast.Attribute, is_called: bool) -> None:
    if not isinstance(node.ctx, ast.Load):
        raise _refuse(node, "an attribute may not be set")
    if isinstance(node.value, ast.Name) and node.value.id == "math":
        if node.attr not in MATH:
            raise _refuse(node, "this part of math is not allowed")
    elif not is_called or node.attr not in METHODS:
        raise _refuse(node, f"of methods only {', '.join(sorted(METHODS))} may be called")


def _check_names(tree: ast.Module, functions: dict[str, ast.FunctionDef]) -> None:
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    read = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            _check_name(node, node.arg)
        elif isinstance(node, ast.Name):
            _check_name(node, node.id)
            if isinstance(node.ctx, ast.Store):
                bound.add(node.id)
            else:
                read.append(node)
        elif isinstance(node, ast.ImportFrom):
            bound |= {alias.name for alias in node.names}
    if bound & (set(functions) | {"math"}):
        raise Refused("a name stands for a function and for a value")
    known = bound | set(functions) | BUILTINS | TYPES | {"math"}
    for node in read:
        if node.id not in known:
            raise _refuse(node, "a name that is neither defined here nor allowed")
