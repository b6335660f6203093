"""Whether the service would start with the settings in this environment, and reach what it needs.

The service is asked itself, as a process: only it knows what its settings must be like.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from rekindle.cli.diagnostics.check import Check, doubt, missing, ok

_OURS = ("REKINDLE_AZURE_SUBSCRIPTION_ID", "REKINDLE_DATABASE_URL", "REKINDLE_DEPLOYMENT")
_MEANING = {
    "REKINDLE_AZURE_RESOURCE_GROUP": "the resource group that scale sets are made in",
    "REKINDLE_AZURE_SUBNET_ID": "the id of the nodes' subnet; {region} stands for the region",
    "REKINDLE_AZURE_SSH_PUBLIC_KEY": "a public SSH key; Azure wants one",
    "REKINDLE_OFFERINGS": "what may be bought: SIZE@REGION[:on_demand][:azureml[=CLUSTER]],...",
    "REKINDLE_DATABASE_URL": "PostgreSQL",
    "REKINDLE_STORAGE": "the storage account's connection string",
    "REKINDLE_PUBLIC_URL": "where nodes reach the service",
    "REKINDLE_SECRET_KEY": "32 characters or more",
    "REKINDLE_ACCEPTED_SECRET_KEY": "32 characters or more, or empty",
    "REKINDLE_DEPLOYMENT": "a name that no other deployment has",
}
_SECONDS = 120.0  # beyond all of the service's own time-outs
_COMMAND = "python -m service.main check"


def checks(environment: Mapping[str, str]) -> Iterator[Check]:
    """Line by line; none where the environment has no settings of the service."""
    if not any(environment.get(name) for name in _OURS):
        return
    if find_spec("service") is None:
        yield _unknown("the service is not installed here")
        return
    argv = [sys.executable, *_COMMAND.split()[1:], "--json"]
    try:
        said = subprocess.run(
            argv,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield _unknown(f"{_COMMAND} did not end in {_SECONDS:.0f} s")
        return
    try:
        parts = json.loads(said.stdout)
    except ValueError:
        last = (said.stderr.strip().splitlines() or ["it said nothing"])[-1]
        yield _unknown(f"{_COMMAND} failed: {last[:200]}")
        return
    yield from map(_told, parts)


def _told(part: Mapping[str, Any]) -> Check:
    name, found = str(part["name"]), str(part["found"])
    if not part["remedy"]:
        return ok(name, found)
    meaning = _MEANING.get(name)
    return missing(name, found, f"Set it: {meaning}." if meaning else str(part["remedy"]))


def _unknown(why: str) -> Check:
    return doubt("settings", why, f"Where the service runs, with its environment: {_COMMAND}")
