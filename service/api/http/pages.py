"""Cursor pagination as OpenAI does it: ``after`` is the id of the last item seen."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query

from service.api.schemas.base import Page
from service.domain.errors import InvalidRequest, UnknownCursor

T = TypeVar("T")
P = TypeVar("P", bound=Page[Any])

After = Annotated[str | None, Query(description="Id of the last item of the page before.")]


def page(
    kind: type[P],
    items: Sequence[T],
    limit: int,
    view: Callable[[T], Any],
    **members: Any,  # noqa: ANN401 - the list's own members
) -> P:
    """Return the list envelope; ``items`` has one more than ``limit`` if a page follows."""
    data = [view(i) for i in items[:limit]]
    return kind(
        data=data,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=len(items) > limit,
        **members,
    )


def require_known_cursor(items: Sequence[T] | None, after: str | None) -> Sequence[T]:
    """Return the items, or raise 400: an unknown cursor must never show the first page again."""
    if items is None:
        raise UnknownCursor(
            f"after={after!r}: no such item. Start again without `after`.",
            param="after",
        )
    return items


def clamp_limit(limit: int, most: int) -> int:
    """Cut a limit that is too large; refuse one below 1."""
    if limit < 1:
        raise InvalidRequest(f"limit is {limit}, but it must be at least 1.", param="limit")
    return min(limit, most)
