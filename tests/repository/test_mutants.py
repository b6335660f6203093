"""Planted faults of `make mutants` match the code, and name tests that exist."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

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


def test_no_fault_is_caught_only_because_it_uses_an_undefined_name(tmp_path: Path) -> None:
    for number, fault in enumerate(FAULTS):
        if fault.file.endswith(".py"):
            (tmp_path / f"fault_{number}.py").write_text(
                planted((ROOT / fault.file).read_text(), fault)
            )
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", str(tmp_path)]

    check = subprocess.run(ruff, capture_output=True, text=True, check=False)

    assert check.returncode == 0, check.stdout


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
