"""Messages of any kind for property tests, within the bounds that their members state."""

import re
import types
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from trainer.contract.bounds import CountBound, PatternBound, RangeBound, TextBound

_DEFAULT = RangeBound(-(2**62), 2**62)


def messages(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Any message of this kind."""
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{f.name: values(hints[f.name]) for f in fields(kind)})


def values(hint: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - any type that a message has
    """Any value that a member of this type may have."""
    bounds: list[Any] = []
    if get_origin(hint) is Annotated:
        hint, *bounds = get_args(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of(*(st.none() if a is types.NoneType else values(a) for a in args))
    if origin is tuple:
        return st.lists(values(args[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(st.text(max_size=10), values(args[1]), max_size=3)
    if origin is Literal:
        return st.sampled_from(args)
    if is_dataclass(hint):
        return messages(hint)  # type: ignore[arg-type] # a class, not an object of it
    return _scalar(hint, bounds)


def _scalar(hint: Any, bounds: list[Any]) -> st.SearchStrategy[Any]:  # noqa: ANN401
    if hint is Any:
        return st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=2)
    if hint is bool:
        return st.booleans()
    if issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    if hint is str:
        return _text(bounds)
    allowed = next((b for b in bounds if isinstance(b, RangeBound)), _DEFAULT)
    if hint is int:
        return st.integers(int(allowed.least), int(allowed.most))
    finite = st.floats(allowed.least, allowed.most)
    return finite | st.just(float("nan")) | st.just(float("inf")) if allowed.measured else finite


def _text(bounds: list[Any]) -> st.SearchStrategy[str]:
    pattern = next((b for b in bounds if isinstance(b, PatternBound)), None)
    if pattern is not None:
        return st.from_regex(re.compile(pattern.regex, pattern.flags), fullmatch=True).filter(
            lambda text: not any(bound.fault(text) for bound in bounds)
        )
    limit = next((b.most for b in bounds if isinstance(b, TextBound)), 50)
    raw = not bounds or bounds[0].raw
    allowed = st.characters(exclude_categories=["Cs"], exclude_characters="" if raw else "\0")
    return st.text(allowed, max_size=min(limit, 50))


def unbounded(kind: type[Any], path: str = "") -> list[str]:
    """List the members of a message and its nested messages that state no bound of their own."""
    unbounded_members: list[str] = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        unbounded_members += _unbounded(hint, f"{path or kind.__name__}.{name}")
    return unbounded_members


def _unbounded(hint: Any, path: str) -> list[str]:  # noqa: ANN401
    bounds: list[Any] = []
    if get_origin(hint) is Annotated:
        hint, *bounds = get_args(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return [w for a in args if a is not types.NoneType for w in _unbounded(a, path)]
    if origin is tuple:
        counted = any(isinstance(bound, CountBound) for bound in bounds)
        return ([] if counted else [path]) + _unbounded(args[0], f"{path}[]")
    if is_dataclass(hint):
        return unbounded(hint, path)  # type: ignore[arg-type] # a class, not an object of it
    free = hint is float or (isinstance(hint, type) and issubclass(hint, bool | StrEnum))
    return [] if bounds or free else [path]
