"""Errors: the tree that errors.py draws is the tree that it defines."""

import re

from service.domain import errors
from service.domain.errors import IllegalMove, InvalidRequest, InvalidState, ServiceError


def tree(base: type[ServiceError]) -> set[str]:
    return {base.__name__}.union(*(tree(child) for child in base.__subclasses__()))


def test_every_error_is_in_the_drawing_and_nothing_else() -> None:
    drawn = re.findall(
        r"^[ |]*(?:\+-- )?([A-Z]\w+)(?: {2,}.*)?$", errors.__doc__ or "", re.MULTILINE
    )

    assert set(drawn) == tree(ServiceError)


def test_the_drawing_tells_codes_and_statuses() -> None:
    drawing = errors.__doc__ or ""
    for name in tree(ServiceError) - {"ServiceError", "NotFound", "Conflict", "InvalidRequest"}:
        error = getattr(errors, name)
        (line,) = re.findall(rf"\+-- {name} .*", drawing)
        assert error.code in line or str(error.status) in line


def test_conflicts_tell_openais_clients_not_to_try_again() -> None:
    assert InvalidState("The job is over.").retry is False


def test_a_bad_request_says_which_code_and_parameter() -> None:
    error = InvalidRequest("No.", code="unknown_cursor", param="after")

    assert (error.status, error.code, error.param, str(error)) == (
        400,
        "unknown_cursor",
        "after",
        "No.",
    )


def test_an_illegal_move_names_the_move() -> None:
    assert "job cannot go from failed to running" in str(IllegalMove("job", "failed", "running"))
