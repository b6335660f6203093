"""Prepare the emulated Azure of compose.yaml for the first job; repeating is harmless.

Creates a resource group and stages the tiny base model. Runs once, in the local image.
"""

import os
import ssl
import subprocess
import sys
from pathlib import Path

import httpx

STATE = Path("/state")
BASE_MODEL = "rekindle/tiny-llama"


def main() -> None:
    """Create the resource group and stage the model; an error ends the program."""
    _make_group()
    model = STATE / "tiny-llama"
    if not model.exists():
        fresh = STATE / "tiny-llama.new"
        subprocess.run([sys.executable, "-m", "trainer.tiny", str(fresh)], check=True)
        fresh.rename(model)
    stage = [sys.executable, "-m", "rekindle.stage", "--name", BASE_MODEL, str(model)]
    subprocess.run(stage, check=True)


def _make_group() -> None:
    arm, tenant = _setting("AZURE_ENDPOINT"), _setting("AZURE_TENANT_ID")
    group = f"{_setting('AZURE_SUBSCRIPTION_ID')}/resourceGroups/{_setting('AZURE_RESOURCE_GROUP')}"
    form = {
        "grant_type": "client_credentials",
        "client_id": _setting("AZURE_CLIENT_ID"),
        "client_secret": _setting("AZURE_CLIENT_SECRET"),
        "scope": f"{arm}/.default",
    }
    trust = ssl.create_default_context(cafile=_setting("AZURE_CA"))
    with httpx.Client(base_url=arm, verify=trust, trust_env=False) as http:
        token = http.post(f"/{tenant}/oauth2/v2.0/token", data=form).raise_for_status()
        http.put(
            f"/subscriptions/{group}",
            params={"api-version": "2021-04-01"},
            headers={"Authorization": f"Bearer {token.json()['access_token']}"},
            json={"location": "eastus"},
        ).raise_for_status()


def _setting(name: str) -> str:
    return os.environ[f"REKINDLE_{name}"]


if __name__ == "__main__":
    main()
