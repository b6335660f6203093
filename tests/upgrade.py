"""`python -m tests.upgrade [--rev REV] [--jobs N] [PATH ...]` (`make upgrade`).

An upgrade migrates first; the processes of the release before go on working beside the new ones
until each is replaced. So that release's own tests of the service that use PostgreSQL are run in a
clone of it, with the migrations of this tree in place of its own. Those about migrations are left
out. What fails is run again on its own schema, since what fails there too is no fault of ours, and
what holds there once more on this one. Exit 1: a test needs what this schema has no more; 2: there
is no such release, or pytest could not run.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MIGRATIONS = "migrations/versions"
TESTS = ("tests/integration", "tests/contract")
ABOUT_MIGRATIONS = ("test_migrations.py", "test_db_schema.py")
PLUGIN = "postgres_only"
INSTALLED = (".venv", "node_modules")
NEITHER = "not azure and not gpu and not long"


def main() -> int:
    """Run them, and say by the exit status whether the release before works on this schema."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="rekindle-upgrade-") as folder:
        release = Path(folder) / "release"
        rev = options.rev or before_the_newest_migration()
        try:
            _check_out(rev, release)
        except subprocess.CalledProcessError as fault:
            sys.stderr.write(f"{rev} cannot be had: {fault.stderr.strip()}\n")
            sys.stderr.write("Choose a commit of this clone: make upgrade REV=COMMIT\n")
            return 2
        _say(f"Tests of {_git('log', '-1', '--format=%h %s', rev)}")
        return 1 if _broken(release, options.jobs, options.paths or TESTS) else 0


def before_the_newest_migration() -> str:
    """The last commit without it; HEAD where it is not committed yet."""
    if _git("status", "--porcelain", "--", MIGRATIONS):
        return "HEAD"
    return _git("log", "-1", "--format=%H", "--", MIGRATIONS) + "^"


def _check_out(rev: str, release: Path) -> None:
    _git("clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(release))
    commit = _git("rev-parse", "--verify", f"{rev}^{{commit}}")
    _git("-C", str(release), "checkout", "--quiet", commit)
    for part in INSTALLED:
        if (ROOT / part).exists():
            (release / part).symlink_to((ROOT / part).resolve())


def _broken(release: Path, jobs: int, paths: Sequence[str]) -> list[str]:
    """Tests that fail on our schema, and not on their own; its fixtures migrate to the head."""
    shutil.copy(ROOT / f"tests/{PLUGIN}.py", release / f"{PLUGIN}.py")
    own = release.with_name("own")
    shutil.copytree(release / MIGRATIONS, own)
    _migrate_by(ROOT / MIGRATIONS, release)
    failed = _failed(release, jobs, paths)
    if failed:
        _say(f"{len(failed)} of them fail. The same on their own schema:")
        _migrate_by(own, release)
        failed -= _failed(release, jobs, sorted(failed))
    if failed:
        _say(f"{len(failed)} of them hold there. Once more on ours, one at a time:")
        _migrate_by(ROOT / MIGRATIONS, release)
        failed = _failed(release, 1, sorted(failed))  # those of a busy machine hold now
    for name in sorted(failed):
        _say(f"BROKEN by the new schema: {name}")
    _say(f"{len(failed)} tests need what this schema has no more")
    return sorted(failed)


def _migrate_by(versions: Path, release: Path) -> None:
    shutil.rmtree(release / MIGRATIONS)
    shutil.copytree(versions, release / MIGRATIONS)


def _failed(release: Path, jobs: int, paths: Sequence[str]) -> set[str]:
    """``release`` comes before what is installed, in the processes that tests start as well."""
    there = [path for path in paths if (release / path.partition("::")[0]).exists()]
    left_out = [f"--ignore-glob=*/{name}" for name in ABOUT_MIGRATIONS]
    flags = ["-q", "-p", PLUGIN, "-m", NEITHER, "--continue-on-collection-errors", *left_out]
    workers = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 else []
    kept = release.with_name("pytest-cache")
    shutil.rmtree(kept, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *flags, "-o", f"cache_dir={kept}", *workers, *there],
        cwd=release,
        env=os.environ | {"PYTHONPATH": str(release)},  # noqa: TID251 - a program of its own
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(2)
    found = kept / "v/cache/lastfailed"
    return set(json.loads(found.read_text())) if done.returncode else set()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    parser.add_argument("--rev", help="default: the last commit before the newest migration")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time")
    parser.add_argument("paths", nargs="*", help="default: tests/integration and tests/contract")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
