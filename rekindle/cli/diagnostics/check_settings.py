"""Check with `service.main check` that the service would start with these settings.

The check runs in a process of the service, which alone knows its settings.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from rekindle.cli.diagnostics.check import CheckResult, doubtful_check, failed_check, passed_check

_REQUIRED_NAMES = ("REKINDLE_AZURE_SUBSCRIPTION_ID", "REKINDLE_DATABASE_URL", "REKINDLE_DEPLOYMENT")
_MEANING = {
    "REKINDLE_AZURE_RESOURCE_GROUP": "resource group of the scale sets",
    "REKINDLE_AZURE_SUBNET_ID": "id of the nodes' subnet; {region} stands for the region",
    "REKINDLE_AZURE_SSH_PUBLIC_KEY": "a public SSH key, which Azure requires",
    "REKINDLE_OFFERINGS": "machines to buy: SIZE@REGION[:on_demand][:azureml[=CLUSTER]],...",
    "REKINDLE_DATABASE_URL": "address of PostgreSQL",
    "REKINDLE_STORAGE": "connection string of the storage account",
    "REKINDLE_PUBLIC_URL": "address at which nodes reach the service",
    "REKINDLE_SECRET_KEY": "32 characters or more",
    "REKINDLE_ACCEPTED_SECRET_KEY": "32 characters or more, or empty",
    "REKINDLE_DEPLOYMENT": "unique name of this deployment",
}
_SECONDS = 120.0  # longer than the service's own timeouts
_COMMAND = "python -m service.main check"


def settings_checks(environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Yield the checks of the service; none if the environment has no settings."""
    if not any(environment.get(name) for name in _REQUIRED_NAMES):
        return
    if find_spec("service") is None:
        yield _unchecked("the service is not installed here")
        return
    argv = [sys.executable, *_COMMAND.split()[1:], "--json"]
    try:
        result = subprocess.run(
            argv,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield _unchecked(f"{_COMMAND} did not finish within {_SECONDS:.0f} s")
        return
    try:
        parts = json.loads(result.stdout)
    except ValueError:
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        yield _unchecked(f"{_COMMAND} failed: {last[:200]}")
        return
    yield from map(_parse_result, parts)


def _parse_result(document: Mapping[str, Any]) -> CheckResult:
    name, finding = str(document["name"]), str(document["found"])
    if not document["remedy"]:
        return passed_check(name, finding)
    meaning = _MEANING.get(name)
    return failed_check(
        name, finding, f"Set it: {meaning}." if meaning else str(document["remedy"])
    )


def _unchecked(why: str) -> CheckResult:
    return doubtful_check(
        "settings", why, f"Run where the service runs, with its environment: {_COMMAND}"
    )
