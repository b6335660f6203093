"""What an operator writes: taken as it was meant, or refused with a sentence."""

from datetime import UTC, datetime

import pytest

from service import console

WEIGHTS = ("nan", "inf", "1e309", "1e-320", "0", "-1", "heavy")
AMOUNTS = ("NaN", "Infinity", "$inf", "1e9", "1e-9", "much")
REFUSED = [
    *(("quota", f"--weight={text}", "is no weight: write a number") for text in WEIGHTS),
    *(("budget", f"--set={text}", "is no amount of dollars from 0.01") for text in AMOUNTS),
    ("quota", "--max-jobs=99999999999", "is no number up to 2147483647"),
    ("quota", f"--max-jobs={'9' * 5000}", "is no number up to 2147483647"),
    ("quota", "--max-jobs=many", "is no number up to 2147483647"),
]


@pytest.mark.parametrize(("command", "option", "says"), REFUSED)
def test_a_number_that_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], command: str, option: str, says: str
) -> None:
    with pytest.raises(SystemExit):
        console.parse_arguments(None, [command, option])

    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "hour"), [("2026-11-01", 0), ("2026-11-01T12:00", 12), ("2026-11-01T12:00+02:00", 10)]
)
def test_a_time_is_of_the_zone_that_it_names_and_else_utc(text: str, hour: int) -> None:
    options = console.parse_arguments(None, ["budget", "--set", "$10", "--since", text])

    assert options.since == datetime(2026, 11, 1, hour, tzinfo=UTC)
    assert options.set == 10
