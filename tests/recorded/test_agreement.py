"""Agreement of the emulator with recordings of Azure, by the tests of public clients."""

from tests.recorded import agreement


def test_the_emulator_differs_from_azure_only_where_it_is_known_to() -> None:
    new = agreement.findings() - agreement.known_findings()

    assert not new, "mend the emulator, or say in known.json why the difference stays"


def test_every_known_difference_from_azure_is_still_there() -> None:
    outdated = agreement.known_findings() - agreement.findings()

    assert not outdated, "run make docs: it drops them"


def test_every_known_difference_has_a_reason() -> None:
    assert {entry["reason"] for entry in agreement.known()} <= set(agreement.REASONS)
    assert all(entry["why"] for entry in agreement.known())


def test_there_are_enough_exchanges_to_compare() -> None:
    assert len(agreement.outcomes()) >= 150


def test_the_page_of_the_agreement_is_what_the_recordings_say() -> None:
    assert agreement.PAGE.read_text() == agreement.page(), "run make docs"
