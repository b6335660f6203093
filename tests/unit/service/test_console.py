"""What an operator writes: taken as it was meant, or refused with a sentence."""

from datetime import UTC, datetime

import pytest

from service import console


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit):
        console.parse_arguments(None, words)
    return capsys.readouterr().err


@pytest.mark.parametrize("text", ["nan", "inf", "1e309", "1e-320", "0", "-1", "heavy"])
def test_a_weight_of_nothing_is_refused(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert "is no weight: write a number" in refusal(capsys, "quota", f"--weight={text}")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "$inf", "1e9", "1e-9", "much"])
def test_a_budget_of_no_amount_is_refused(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert "is no amount of dollars from 0.01" in refusal(capsys, "budget", f"--set={text}")


@pytest.mark.parametrize("text", ["99999999999", "9" * 5000, "many"])
def test_a_number_too_large_is_refused(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert "is no number up to 2147483647" in refusal(capsys, "quota", "--max-jobs", text)


@pytest.mark.parametrize(
    ("text", "hour"), [("2026-11-01", 0), ("2026-11-01T12:00", 12), ("2026-11-01T12:00+02:00", 10)]
)
def test_a_time_is_of_the_zone_that_it_names_and_else_utc(text: str, hour: int) -> None:
    options = console.parse_arguments(None, ["budget", "--set", "$10", "--since", text])

    assert options.since == datetime(2026, 11, 1, hour, tzinfo=UTC)
    assert options.set == 10
