"""The formula of a multi grader (`calculate_output`): arithmetic over the scores of its graders.

Part of the contract: the service checks formulas, the trainer computes them. Python's parser reads
the text; nothing is run as Python: each known kind of node is computed here.
"""

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping

_LONGEST = 1000  # characters
_DEEPEST = 50  # operations within operations
_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[float], float]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
FUNCTIONS: dict[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log": math.log,
}
_SEVERAL = ("min", "max")  # take any number of values; the others take one


def check_formula(formula: str, names: frozenset[str], where: str) -> None:
    """Raise ValueError, beginning with ``where``, unless it computes from ``names`` alone."""
    try:
        used = _check(_parsed(formula), names)
    except ValueError as e:
        raise ValueError(f"{where}: {e}") from None
    if unused := sorted(names - used):
        raise ValueError(f"{where}: grader {unused[0]!r} is not in it; leave it out or use it")


def compute(formula: str, values: Mapping[str, float]) -> float:
    """Return the formula's value; raise ArithmeticError or ValueError where it has none."""
    return float(_computed(_parsed(formula), values))


def _parsed(formula: str) -> ast.expr:
    """Parse the formula. `^` is a power, as in OpenAI's formulas, and binds as one."""
    if len(formula) > _LONGEST:
        raise ValueError(f"longer than {_LONGEST} characters")
    try:
        return ast.parse(formula.strip().replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(f"{formula!r:.80} is no arithmetic") from None


def _check(node: ast.expr, names: frozenset[str], depth: int = 0) -> set[str]:
    """Return the names that the node reads; raise ValueError for an unknown construct."""
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} operations within each other")
    match node:
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            return set()
        case ast.Name(id=name):
            if name not in names:
                raise ValueError(f"no grader is called {name!r}; there are: {_list(names)}")
            return {name}
        case ast.BinOp(op=op) if type(op) in _BINARY:
            return _check(node.left, names, depth + 1) | _check(node.right, names, depth + 1)
        case ast.UnaryOp(op=sign) if type(sign) in _UNARY:
            return _check(node.operand, names, depth + 1)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS and node.args:
            if len(node.args) > 1 and name not in _SEVERAL:
                raise ValueError(f"{name} takes one value")
            return {n for arg in node.args for n in _check(arg, names, depth + 1)}
        case _:
            raise ValueError(
                f"what stands at character {node.col_offset + 1} is not known; there are + - * / ^,"
                f" numbers, names of graders and the functions {_list(FUNCTIONS)}"
            )


def _computed(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp():
            left, right = _computed(node.left, values), _computed(node.right, values)
            return _BINARY[type(node.op)](left, right)
        case ast.UnaryOp():
            return _UNARY[type(node.op)](_computed(node.operand, values))
        case ast.Call(func=ast.Name(id=name)):
            arguments = [_computed(arg, values) for arg in node.args]
            return (
                arguments[0]
                if len(arguments) == 1 and name in _SEVERAL
                else FUNCTIONS[name](*arguments)
            )
        case _:
            raise AssertionError("a formula is checked before it is computed")


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
