"""Every request that the API refuses, by a row of a table: status, code, param, what is said."""

import pytest

from tests.refusals import table
from tests.refusals.conftest import Stage

ROWS = table.read_requests()
TYPES = {401: "authentication_error", 403: "permission_error", 409: "conflict_error"}
RETRY = {409: "false", 410: "false", 425: "true"}  # clients try a 409 again unless they are told


@pytest.mark.asyncio(loop_scope="package")
@pytest.mark.parametrize("row", ROWS, ids=table.row_names(ROWS))
async def test_what_cannot_be_done_is_refused_with_what_to_do(stage: Stage, row: table.Row) -> None:
    before = await stage.count_rows()

    answer = await stage.send(row)

    error = answer.json()["error"]
    status, code, *param = str(stage.filled(row.expected)).split(" ", 2)
    reported = (answer.status_code, error["code"], error["param"])
    assert reported == (int(status), code, param[0] if param else None), error
    assert error["type"] == TYPES.get(int(status), "invalid_request_error")
    assert [part for part in row.parts if stage.filled(part) not in error["message"]] == [], error
    assert len(error["message"]) < 1000
    assert answer.headers["x-request-id"] == "req-row"
    assert ("allow" in answer.headers) == (answer.status_code == 405)
    assert answer.headers.get("x-should-retry") == RETRY.get(answer.status_code)
    assert await stage.count_rows() == before
