from datetime import UTC

import pytest

from rekindle.cli import formats


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        ("12.3456", "USD", "$12.35"),
        ("0.0312", "USD", "$0.0312"),
        ("0.0000", "USD", "$0.00"),
        ("-0.5", "USD", "-$0.5000"),
        ("1234567.8", "EUR", "€1,234,567.80"),
        ("3", "CHF", "3.00 CHF"),
        (None, "USD", "-"),
    ],
)
def test_money_has_a_sign_and_digits_that_matter(amount: object, currency: str, shown: str) -> None:
    assert formats.money(amount, currency) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 05 min"),
        (273_600, "3 d 4 h"),
        (-3, "0 s"),
        (None, "-"),
    ],
)
def test_durations_are_in_two_units(seconds: object, shown: str) -> None:
    assert formats.duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1_234_567, "1.2 MB"), (15e12, "15.0 TB"), (None, "-")],
)
def test_sizes_are_in_decimal_units(count: object, shown: str) -> None:
    assert formats.size(count) == shown


def test_times_are_in_the_zone_of_who_reads_them() -> None:
    assert formats.local_time(1_795_000_000, UTC) == "11:06:40"
    assert formats.local_time(1_795_000_000, UTC, day=True) == "2026-11-18 11:06:40"
    assert formats.local_time(None) == "-"


def test_a_job_that_is_over_says_how_and_not_what_it_last_did() -> None:
    assert formats.phase({"status": "failed", "phase": "done"}) == "Failed"
    assert (
        formats.phase({"status": "running", "phase": "waiting_capacity"}) == "Waiting for capacity"
    )


def test_a_phase_that_is_news_to_us_is_shown_as_it_is() -> None:
    assert formats.phase({"status": "running", "phase": "warming_up"}) == "Warming up"
    assert formats.phase({}) == "-"


def test_a_reason_that_repeats_the_state_is_left_out() -> None:
    job = {"status": "running", "phase": "training"}

    assert formats.reason(job | {"status_reason": {"code": "x", "message": "training"}}) == ""
    assert (
        formats.reason(job | {"status_reason": {"message": "Azure has none."}}) == "Azure has none."
    )
    assert formats.reason(job) == ""


def test_what_strangers_wrote_cannot_move_the_cursor() -> None:
    assert formats.printable_line("a\x1b[2Jb\r\nc") == r"a\x1b[2Jb c"
