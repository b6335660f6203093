"""Every import contract holds, and each one breaks when a forbidden import is planted."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.repository.sources import ROOT, python_files

PACKAGES = ("contract", "rendering", "service", "trainer", "emulator", "rekindle", "bench")

# Contract -> (module that gets the import, the import).
PLANTS = {
    "Floors: imports only go down": ("service/domain/states.py", "import service.operations"),
    "The domain is plain Python": ("service/domain/states.py", "import sqlalchemy"),
    "Floors of the domain: imports only go down": (
        "service/domain/cloud/fleet.py",
        "import service.domain.planning.plan",
    ),
    "Only adapters know Azure": ("service/operations/__init__.py", "import azure.core"),
    "Trainer, emulator and command line never import the service": (
        "trainer/contract/messages.py",
        "import service.settings",
    ),
    "Of the trainer, the service knows the contract only": (
        "service/operations/__init__.py",
        "import trainer.supervisor.control.node_state",
    ),
    "Rendering needs neither our other parts nor torch": ("rendering/rows.py", "import numpy"),
    "A job's request knows none of our other parts": ("contract/job.py", "import trainer.contract"),
    "The contract needs only the standard library": (
        "trainer/contract/messages.py",
        "import torch",
    ),
    "What tries graders in the service runs no code of users": (
        "trainer/graders/text.py",
        "import trainer.graders.sandbox",
    ),
    "The emulator is a program of its own": ("emulator/__init__.py", "import rekindle"),
    "Floors of the emulator: imports only go down": (
        "emulator/core/state.py",
        "import emulator.fabric",
    ),
    "Inside the emulator's core, rows are the ground": (
        "emulator/core/rows.py",
        "import emulator.core.store",
    ),
    "Of the emulator's parts, deployments alone know the resources": (
        "emulator/aml/workspaces.py",
        "import emulator.resources.store",
    ),
    "The emulator asks about access at its doors": (
        "emulator/resources/requests.py",
        "import emulator.access.enforcement",
    ),
    "The emulator's market and capacity are asked by few": (
        "emulator/capacity/reclaims.py",
        "import emulator.market.costs",
    ),
    "Faults of the emulator are known to few": (
        "emulator/capacity/reclaims.py",
        "import emulator.faults.harm",
    ),
    "The command line knows the parts only as processes": (
        "rekindle/__init__.py",
        "import emulator",
    ),
    "Benchmarks measure from outside": ("bench/__init__.py", "import service.operations"),
}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Copy all files that the contracts cover, and return the folder."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file in python_files():
        if file.parts[0] in PACKAGES:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_every_contract_has_a_plant() -> None:
    assert set(PLANTS) == _contracts()


def test_every_contract_is_kept(sources: Path) -> None:
    assert _verdicts(_lint(sources)) == dict.fromkeys(PLANTS, "KEPT")


def test_each_planted_import_breaks_its_contract(sources: Path) -> None:
    """Plant all imports in one run, because a run takes seconds; each report names its plant."""
    for file, statement in PLANTS.values():
        with (sources / file).open("a") as module:
            module.write(f"\n{statement}\n")

    printed = _lint(sources)

    assert _verdicts(printed) == dict.fromkeys(PLANTS, "BROKEN")
    for contract, (file, statement) in PLANTS.items():
        importer = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        imported = statement.removeprefix("import ")
        pattern = re.escape(f"{importer} -> ") + rf"({imported}|{imported.split('.')[0]}) \("
        assert re.search(pattern, _report(printed, contract)), contract


def test_a_package_on_no_floor_breaks_the_floors(sources: Path) -> None:
    (sources / "service" / "attic").mkdir()
    (sources / "service" / "attic" / "__init__.py").touch()

    assert _verdicts(_lint(sources))["Floors: imports only go down"] == "BROKEN"


def _contracts() -> set[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {contract["name"] for contract in settings["tool"]["importlinter"]["contracts"]}


def _lint(folder: Path) -> str:
    """Run import-linter in a folder and return its output."""
    program = Path(sys.executable).with_name("lint-imports")
    process = subprocess.run(
        [program, "--no-logo", "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return process.stdout + process.stderr


def _verdicts(printed: str) -> dict[str, str]:
    """Return KEPT or BROKEN by contract."""
    verdicts = {
        name: verdict
        for name in _contracts()
        for verdict in ("KEPT", "BROKEN")
        if re.search(f"^{re.escape(name)} {verdict}", printed, re.MULTILINE)
    }
    assert set(verdicts) == _contracts(), printed
    return verdicts


def _report(printed: str, contract: str) -> str:
    """Return the report of a broken contract: from its underlined title to the next one's."""
    start = printed.index(f"\n{contract}\n--") + len(contract) * 2 + 2
    ends = (printed.find(f"\n{name}\n--", start) for name in PLANTS)
    return printed[start : min((end for end in ends if end > 0), default=None)]
