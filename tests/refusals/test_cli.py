"""Every command line that is refused, by a row of a table: exit status, and what is said."""

import shlex

import pytest

from tests.refusals import table
from tests.refusals.conftest import Stage

COMMANDS = table.read_commands()


@pytest.mark.asyncio(loop_scope="package")
@pytest.mark.parametrize("row", COMMANDS, ids=table.row_names(COMMANDS))
async def test_a_command_that_cannot_work_ends_with_what_to_do(
    stage: Stage, row: table.Command
) -> None:
    before = await stage.count_rows()

    result = await stage.run(shlex.split(stage.filled(row.words)))

    assert result.code == row.code, result
    assert [part for part in row.parts if stage.filled(part) not in result.err] == [], result.err
    assert result.err
    assert "Traceback" not in result.err
    assert await stage.count_rows() == before
