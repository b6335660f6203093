"""Errors: what a caller gets of them."""

from service.domain.errors import IllegalMove, InvalidState, UnknownCursor


def test_conflicts_tell_openais_clients_not_to_try_again() -> None:
    assert InvalidState("The job is over.").retry is False


def test_a_bad_request_says_which_code_and_parameter() -> None:
    error = UnknownCursor("No.", param="after")

    assert (error.status, error.code, error.param, str(error)) == (
        400,
        "unknown_cursor",
        "after",
        "No.",
    )


def test_an_illegal_move_names_the_move() -> None:
    assert "job cannot go from failed to running" in str(IllegalMove("job", "failed", "running"))
