"""Planted faults of `make mutants` match the code, and name tests that exist."""

from collections import Counter

import pytest

from tests.mutants.__main__ import PACKAGES, ROOT
from tests.mutants.faults import Fault, chosen, planted, read_faults

FAULTS = read_faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.fault)
def test_a_fault_has_one_place_and_a_test_to_catch_it(fault: Fault) -> None:
    path, _, test = fault.caught_by.partition("::")
    name, _, case = test.rpartition("::")[2].partition("[")

    assert planted((ROOT / fault.file).read_text(), fault)
    assert {fault.file.partition("/")[0], path.partition("/")[0]} <= {*PACKAGES}
    text = (ROOT / path).read_text()
    assert f"def {name}(" in text
    text += "".join(table.read_text() for table in (ROOT / path).parent.glob("*.toml"))
    assert f'"{case.removesuffix("]")}"' in text or not case


def test_no_two_faults_are_called_the_same() -> None:
    assert [name for name, times in Counter(f.fault for f in FAULTS).items() if times > 1] == []


def test_a_fault_whose_place_is_gone_fails_loudly() -> None:
    with pytest.raises(ValueError, match="Plant the fault anew"):
        planted("nothing of the kind", FAULTS[0])


def test_faults_are_chosen_by_their_name_their_file_or_their_test() -> None:
    (fault, *_) = FAULTS

    assert fault in chosen(FAULTS, fault.fault.upper())
    assert fault in chosen(FAULTS, fault.file)
    assert fault in chosen(FAULTS, fault.caught_by)
    assert chosen(FAULTS, "no fault has this") == []
