"""`python -m tests.mutants` (`make mutants`): planted faults, and the named test that catches each.

Each fault is one textual change to a copy of the repository. A change whose text is not found fails
loudly: then the code has moved on, and the fault must be planted anew. Exit 1: a fault lives.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("service", "trainer", "rekindle", "migrations", "tests", "emulator", "bench")
FILES = ("pyproject.toml",)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One fault, where it is planted, and the test that must fail with it."""

    fault: str
    file: str
    was: str
    becomes: str
    caught_by: str  # a pytest id


MUTANTS = (
    Mutant(
        fault="ended when its delete is accepted",
        file="service/domain/attempt_steps.py",
        was="return Wait() if seen.scale_set.phase is ScaleSetPhase.DELETING else Delete()",
        becomes="deleting = seen.scale_set.phase is ScaleSetPhase.DELETING\n"
        "    return Move(to=AttemptState.ENDED, outcome=attempt.outcome) if deleting else Delete()",
        caught_by="tests/unit/test_attempt.py::test_rule"
        "[a delete that is under way is waited for, however long]",
    ),
    Mutant(
        fault="the first NotFound is believed",
        file="service/domain/attempt_steps.py",
        was="if now - attempt.since >= pace.read_lag:",
        becomes="if now >= attempt.since:",
        caught_by="tests/unit/test_attempt.py::test_rule"
        "[a scale set that cannot be seen yet is not taken for gone]",
    ),
    Mutant(
        fault="no lease token in the guard",
        file="service/db/leases.py",
        was="claim.table.c.lease_token == claim.token]",
        becomes="claim.table.c.lease_token.is_not(None)]",
        caught_by="tests/integration/test_leases.py::test_a_worker_that_lost_its_lease_writes_nothing",
    ),
    Mutant(
        fault="no lease token in a crowd's guard",
        file="service/db/attempt_moves.py",
        was="where a.id = g.id and a.lease_token = g.token and a.state = g.before",
        becomes="where a.id = g.id and a.state = g.before",
        caught_by="tests/integration/test_crowds.py"
        "::test_of_a_crowd_of_moves_all_are_written_but_those_of_lost_leases",
    ),
    Mutant(
        fault="effect before intent",
        file="service/domain/attempt_steps.py",
        was="    return Move(to=AttemptState.PROVISIONING)\n",
        becomes="    return Create()\n",
        caught_by="tests/unit/test_attempt.py::test_rule"
        "[the intent is written before the cloud is asked]",
    ),
    Mutant(
        fault="no SKIP LOCKED",
        file="service/db/leases.py",
        was="skip_locked=True, ",
        becomes="",
        caught_by="tests/integration/test_leases.py"
        "::test_a_worker_does_not_wait_for_rows_that_another_one_is_claiming",
    ),
    Mutant(
        fault="eviction ignored",
        file="service/domain/attempt_steps.py",
        was="or left + awaited < attempt.instance_count",
        becomes="and left < 0",
        caught_by="tests/unit/test_attempt.py::test_an_attempt_is_ended_by"
        "[a machine that lingers stopped]",
    ),
    Mutant(
        fault="a move that does not exist is made",
        file="service/db/attempt_moves.py",
        was="if one.step.to not in ATTEMPT_MOVES[one.row.state]:",
        becomes="if one.step.to is one.row.state:",
        caught_by="tests/integration/test_db_moves.py"
        "::test_an_attempt_makes_no_move_that_is_not_in_the_table",
    ),
    Mutant(
        fault="expired leases are never taken",
        file="service/db/leases.py",
        was="or_(c.lease_expires_at.is_(None), c.lease_expires_at < now)",
        becomes="c.lease_expires_at.is_(None)",
        caught_by="tests/integration/test_leases.py::test_a_lease_that_has_expired_is_anybodys",
    ),
)


def main() -> int:
    """Plant each, run its test, and print what came of it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rekindle-mutants-") as name:
        folder = Path(name)
        _copy(folder)
        if not _passes(folder, sorted({m.caught_by for m in MUTANTS})):
            _say("One of the tests fails without any fault: mend that first.")
            return 1
        lives = [mutant for mutant in MUTANTS if not _is_caught(folder, mutant)]
    _say(f"{len(MUTANTS) - len(lives)} of {len(MUTANTS)} caught, {time.monotonic() - began:.0f} s")
    return 1 if lives else 0


def planted(text: str, mutant: Mutant) -> str:
    """The file's text with the fault in it; ValueError when its place is not there exactly once."""
    if (found := text.count(mutant.was)) != 1:
        raise ValueError(
            f"{mutant.fault}: {mutant.file} has {mutant.was!r} {found} times, not once. "
            "Plant the fault anew: change `was` and `becomes` in tests/mutants.py."
        )
    return text.replace(mutant.was, mutant.becomes)


def _is_caught(folder: Path, mutant: Mutant) -> bool:
    path = folder / mutant.file
    sound = path.read_text()
    path.write_text(planted(sound, mutant))
    try:
        caught = not _passes(folder, [mutant.caught_by])
    finally:
        path.write_text(sound)
    verdict = "caught by" if caught else "LIVES, in spite of"
    _say(f"{mutant.fault:36} {verdict} {mutant.caught_by.partition('::')[2]}")
    return caught


def _copy(folder: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for part in COPIED:
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    for file in FILES:
        shutil.copy(ROOT / file, folder / file)


def _passes(folder: Path, tests: list[str]) -> bool:
    """Whether pytest is content; ``folder`` comes before what is installed."""
    first = ["env", f"PYTHONPATH={folder}", "PYTHONDONTWRITEBYTECODE=1"]
    command = [*first, sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest could not run {tests}:\n{done.stdout.decode()[-2000:]}")
    return done.returncode == 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
