"""Report known vulnerabilities in the packages of the images: `make audit`.

pip-audit queries OSV for docker/*.txt, npm its registry for package-lock.json. If neither answers,
as in a closed network, the command says so and succeeds.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from docker.engine import ROOT
from rekindle.local.setup import tools_path

OSV = "https://api.osv.dev/v1/query"
# Any package will do to learn whether a database answers at all.
QUESTION = {"package": {"name": "pip", "ecosystem": "PyPI"}, "version": "26.2"}
TIMEOUT = 15.0  # seconds for one answer


class DatabaseUnreachable(Exception):
    """No advisory database answers."""


def main(arguments: list[str] | None = None) -> int:
    """Print known vulnerabilities; return 1 if one is not ignored."""
    options = _options(arguments)
    found = 0
    for name, look in (("docker/*.txt", _python), ("package-lock.json", _npm)):
        try:
            known = [line for line in look(options) if not {*options.ignore} & {*line.split()}]
        except DatabaseUnreachable as reason:
            _say(f"{name}: NOT AUDITED, no advisory database is reachable: {reason}")
            continue
        for line in known:
            _say(f"{name}: {line}")
        _say(f"{name}: audited, {len(known)} known vulnerabilities")
        found += len(known)
    return int(found > 0)


def _python(options: argparse.Namespace) -> Iterator[str]:
    """Yield the known vulnerabilities of the Python packages in the images."""
    _reach(options.osv)
    for lock in options.locks:
        words = ["-m", "pip_audit", "--requirement", str(lock), "--disable-pip", "--format", "json"]
        words += ["--vulnerability-service", "osv", "--osv-url", options.osv]
        done = _run(sys.executable, *words, "--progress-spinner", "off")
        if not done.stdout:
            raise SystemExit(f"pip-audit failed on {lock.name}:\n{done.stderr}")
        for package in json.loads(done.stdout)["dependencies"]:
            for fault in package["vulns"]:
                fixed = ", ".join(fault["fix_versions"]) or "no version yet"
                yield f"{package['name']} {package['version']} {fault['id']} fixed in {fixed}"


def _npm(_: argparse.Namespace) -> Iterator[str]:
    """Yield the known vulnerabilities of the npm packages (the local stack's Azurite)."""
    words = ("audit", "--omit=dev", "--package-lock-only", "--json", "--fetch-retries=0")
    done = _run("npm", *words)
    report: dict[str, Any] = json.loads(done.stdout or "{}")
    if "vulnerabilities" not in report:
        raise DatabaseUnreachable(report.get("message", done.stderr))
    for name, package in report["vulnerabilities"].items():
        for fault in package["via"]:
            if isinstance(fault, dict):  # a text names another package of this report
                yield f"{name} {fault['range']} {Path(fault['url']).name} {fault['title']}"


def _reach(url: str) -> None:
    """Raise DatabaseUnreachable unless a database answers; a proxy's refusal is no answer."""
    try:
        httpx.post(url, json=QUESTION, timeout=TIMEOUT).raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        raise DatabaseUnreachable(f"{url}: {error}") from error


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PATH": tools_path()}
    return subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def _say(what: str) -> None:
    sys.stdout.write(f"{what}\n")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m docker.audit", description=__doc__)
    add = parser.add_argument
    add("--ignore", action="append", default=[], metavar="ID", help="an accepted vulnerability")
    add("--osv", default=OSV, metavar="URL", help="where to ask about Python's packages")
    add("locks", nargs="*", type=Path, help="default: all of docker/*.txt")
    options = parser.parse_args(arguments)
    options.locks = options.locks or sorted((ROOT / "docker").glob("*.txt"))
    return options


if __name__ == "__main__":
    sys.exit(main())
