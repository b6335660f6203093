"""The real `az` on the emulator, and what it said: `python -m tests.system.az` (`make az`).

azure-cli pins other versions of Azure's SDK than ours, so it lives in an environment of its own:
.venv-az, or wherever REKINDLE_AZ points.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.emulator_process import SUBSCRIPTION, TENANT, Emulator, scale_set, set_url, wait_for

ROOT = Path(__file__).parents[2]
SIZE = "Standard_ND96amsr_A100_v4"
TEMPLATE = ROOT / "infra" / "main.json"
GIVEN = (  # what the template has no default for
    "databasePassword=Not-a-secret-1",
    f"secretKey={'x' * 32}",
    "sshPublicKey=ssh-ed25519 AAAA somebody",
)
SECONDS = 120.0  # for one command


def program() -> Path | None:
    """Where `az` is, or None."""
    named = Path(os.environ.get("REKINDLE_AZ", ROOT / ".venv-az" / "bin" / "az"))  # noqa: TID251 - tests have no settings
    return named if named.exists() else None


class Refused(AssertionError):
    """A command failed, or did not say what it should."""


@dataclass
class Shell:
    """`az`, signed in to one emulator; keeps a transcript."""

    az: Path
    emulator: Emulator
    folder: Path
    say: Callable[[str], None] = field(default=lambda _: None)

    def run(self, *words: str) -> str:
        """One command; raises Refused with what it printed when it fails."""
        self.say(f"$ az {' '.join(_short(word) for word in words)}")
        done = subprocess.run(
            [str(self.az), *words],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise Refused(f"az {' '.join(words)}: {done.returncode}\n{done.stderr}{done.stdout}")
        return done.stdout

    def ask(self, *words: str) -> Any:  # noqa: ANN401 - whatever JSON it prints
        """One command that prints JSON."""
        answer = json.loads(self.run(*words, "--output", "json") or "null")
        self.say("  " + _short(json.dumps(answer), 160))
        return answer

    def _environment(self) -> dict[str, str]:
        ours = {
            "AZURE_CONFIG_DIR": str(self.folder / "az"),
            "REQUESTS_CA_BUNDLE": self.emulator.ca,
            "AZURE_CORE_INSTANCE_DISCOVERY": "false",
            "AZURE_CORE_COLLECT_TELEMETRY": "false",
            "AZURE_CORE_ONLY_SHOW_ERRORS": "true",
        }
        return os.environ | ours  # noqa: TID251 - a child's environment


def sign_in(shell: Shell) -> None:
    """Register the emulator as a cloud, and sign in with a client secret."""
    shell.run("cloud", "register", "-n", "emulator", "--endpoint-resource-manager", _arm(shell))
    shell.run("cloud", "set", "-n", "emulator")
    account = shell.ask(
        *("login", "--service-principal", "-u", "tests", "-p", "any", "--tenant", TENANT)
    )
    _expect(account[0]["id"] == SUBSCRIPTION, "the subscription", account)


def scale_sets(shell: Shell) -> None:
    """Everything that one does to a scale set by hand."""
    group, name = ("-g", "az"), ("-n", "rk-az")
    made = shell.ask("group", "create", "-n", "az", "-l", "eastus")
    _expect(made["properties"]["provisioningState"] == "Succeeded", "a group", made)
    with shell.emulator.signed_in() as client:  # `az vmss create` wants a network and an image
        url = set_url("rk-az").replace("/rekindle/", "/az/")
        client.put(url, json=scale_set(2)).raise_for_status()
    wait_for(lambda: shell.emulator.machines("rk-az")[1:])
    shown = shell.ask("vmss", "show", *group, *name)
    _expect(shown["sku"]["capacity"] == 2, "two machines", shown["sku"])
    _expect([s["name"] for s in shell.ask("vmss", "list", *group)] == ["rk-az"], "the list", shown)
    shell.ask("vmss", "scale", *group, *name, "--new-capacity", "3")
    rows = shell.ask("vmss", "list-instances", *group, *name)
    _expect([r["instanceId"] for r in rows] == ["0", "1", "2"], "three instances", rows)
    view = shell.ask("vmss", "get-instance-view", *group, *name)
    _expect(view["virtualMachine"]["statusesSummary"] != [], "a summary", view)
    one = shell.ask("vmss", "get-instance-view", *group, *name, "--instance-id", "1")
    codes = [status["code"] for status in one["statuses"]]
    _expect("PowerState/running" in codes, "a running machine", codes)
    shell.run("vmss", "simulate-eviction", *group, *name, "--instance-id", "2")
    wait_for(lambda: len(shell.emulator.machines("rk-az")) == 2, 45)
    shell.run("vmss", "delete-instances", *group, *name, "--instance-ids", "1")
    rows = shell.ask("vmss", "list-instances", *group, *name)
    _expect([r["instanceId"] for r in rows] == ["0"], "one left", rows)
    shell.run("vmss", "delete", *group, *name)
    _expect(shell.ask("vmss", "list", *group) == [], "none left", name)


def market(shell: Shell) -> None:
    """What one asks before one buys."""
    usages = shell.ask("vm", "list-usage", "-l", "eastus")
    spot = [u for u in usages if u["name"]["value"] == "lowPriorityCores"]
    _expect(len(spot) == 1, "the Spot quota", usages)
    skus = shell.ask("vm", "list-skus", "-l", "eastus", "--size", SIZE, "--all")
    _expect({s["name"] for s in skus} == {SIZE}, "the size", skus)
    score = shell.ask(
        *("compute-recommender", "spot-placement-score", "-l", "eastus"),
        *("--desired-locations", "eastus", "--desired-sizes", f"[{{sku:{SIZE}}}]"),
        *("--desired-count", "2", "--availability-zones", "false"),
    )
    _expect(score["placementScores"] != [], "a score", score)


def deployments(shell: Shell) -> None:
    """The template of infra/, as its README says."""
    where: tuple[str, ...] = ("-g", "az", "--template-file", str(TEMPLATE), "--name", "rekindle")
    where += ("--parameters", f"@{TEMPLATE.with_name('parameters.json')}", *GIVEN)
    shell.ask("deployment", "group", "validate", *where)
    made = shell.ask("deployment", "group", "create", *where)
    _expect(made["properties"]["provisioningState"] == "Succeeded", "success", made)
    kinds = {row["type"].lower() for row in shell.ask("resource", "list", "-g", "az")}
    _expect("microsoft.network/virtualnetworks" in kinds, "a network", kinds)


def sign_out(shell: Shell) -> None:
    """Leave nothing behind."""
    shell.run("group", "delete", "-n", "az", "--yes")
    _expect(shell.run("group", "exists", "-n", "az").strip() == "false", "no group", "az")


STORY = (sign_in, scale_sets, market, deployments, sign_out)


def _arm(shell: Shell) -> str:
    return shell.emulator.arm_url


def _expect(held: bool, what: str, seen: object) -> None:
    if not held:
        raise Refused(f"expected {what}, but az said {seen!r}")


def _short(text: str, most: int = 80) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= most else text[: most - 3] + "..."


def main() -> int:
    """Run the whole story and print its transcript."""
    az = program()
    if az is None:
        sys.stderr.write("az is not installed: make az\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        emulator = Emulator(Path(folder) / "state", "--hollow", "--notice-seconds", "2")
        try:
            shell = Shell(az, emulator, Path(folder), lambda line: print(line, flush=True))  # noqa: T201
            for part in STORY:
                part(shell)
        except Refused as refused:
            sys.stderr.write(f"{refused}\n")
            return 1
        finally:
            emulator.stop()
    print("az: ok")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
