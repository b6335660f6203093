"""The planted faults of `make mutants` can still be planted, and name tests that exist."""

from pathlib import Path

import pytest

from tests.mutants import MUTANTS, ROOT, Mutant, planted


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.fault)
def test_a_fault_has_one_place_and_a_test_to_catch_it(mutant: Mutant) -> None:
    file, _, test = mutant.caught_by.partition("::")
    name, _, case = test.partition("[")

    assert planted((ROOT / mutant.file).read_text(), mutant)
    text = Path(ROOT / file).read_text()
    assert f"def {name}(" in text
    assert f'"{case.removesuffix("]")}"' in text or not case


def test_a_fault_whose_place_is_gone_fails_loudly() -> None:
    with pytest.raises(ValueError, match="Plant the fault anew"):
        planted("nothing of the kind", MUTANTS[0])
