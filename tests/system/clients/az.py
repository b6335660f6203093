"""Record sessions of the real `az` with the emulator: `make az`."""

import sys
import tempfile
from pathlib import Path

from tests.emulated.process import SUBSCRIPTION, TENANT, Emulator, wait_for
from tests.system.clients import az_create
from tests.system.clients.az_shell import ROOT, Refused, Shell, expect, program
from tests.system.clients.transcripts import Transcript

SIZE = "Standard_ND96amsr_A100_v4"
TEMPLATE = ROOT / "infra" / "main.json"
GIVEN = (  # what the template has no default for
    "databasePassword=Not-a-secret-1",
    f"secretKey={'x' * 32}",
    "sshPublicKey=ssh-ed25519 AAAA somebody",
)


def sign_in(shell: Shell) -> None:
    """Register the emulator as a cloud, and sign in with a client secret."""
    shell.run("cloud", "register", "-n", "emulator", "--endpoint-resource-manager", _arm(shell))
    shell.run("cloud", "set", "-n", "emulator")
    account = shell.ask(
        *("login", "--service-principal", "-u", "tests", "-p", "any", "--tenant", TENANT)
    )
    expect(account[0]["id"] == SUBSCRIPTION, "the subscription", account)


def scale_sets(shell: Shell) -> None:
    """Everything that one does to a scale set by hand."""
    group, name = ("-g", "az"), ("-n", "rk-az")
    made = shell.ask("group", "create", "-n", "az", "-l", "eastus")
    expect(made["properties"]["provisioningState"] == "Succeeded", "a group", made)
    kind = ("--orchestration-mode", "Uniform", "--vm-sku", SIZE, "--instance-count", "2")
    asked = ("--priority", "Spot", "--eviction-policy", "Delete", "--ephemeral-os-disk")
    image = ("--image", "microsoft-dsvm:ubuntu-hpc:2204:latest", "--admin-username", "azureuser")
    shell.ask("vmss", "create", *group, *name, *kind, *asked, *image, "--generate-ssh-keys")
    wait_for(lambda: shell.emulator.machines("rk-az")[1:])
    shown = shell.ask("vmss", "show", *group, *name)
    expect(shown["sku"]["capacity"] == 2, "two machines", shown["sku"])
    expect([s["name"] for s in shell.ask("vmss", "list", *group)] == ["rk-az"], "the list", shown)
    shell.ask("vmss", "scale", *group, *name, "--new-capacity", "3")
    rows = shell.ask("vmss", "list-instances", *group, *name)
    expect([r["instanceId"] for r in rows] == ["0", "1", "2"], "three instances", rows)
    view = shell.ask("vmss", "get-instance-view", *group, *name)
    expect(view["virtualMachine"]["statusesSummary"] != [], "a summary", view)
    one = shell.ask("vmss", "get-instance-view", *group, *name, "--instance-id", "1")
    codes = [status["code"] for status in one["statuses"]]
    expect("PowerState/running" in codes, "a running machine", codes)
    shell.run("vmss", "simulate-eviction", *group, *name, "--instance-id", "2")
    wait_for(lambda: len(shell.emulator.machines("rk-az")) == 2, 45)
    shell.run("vmss", "delete-instances", *group, *name, "--instance-ids", "1")
    rows = shell.ask("vmss", "list-instances", *group, *name)
    expect([r["instanceId"] for r in rows] == ["0"], "one left", rows)
    shell.run("vmss", "delete", *group, *name)
    expect(shell.ask("vmss", "list", *group) == [], "none left", name)


def creations(shell: Shell) -> None:
    """Scale sets in every form that people ask for."""
    for form in az_create.FORMS:
        form(shell)


def market(shell: Shell) -> None:
    """Ask what a buyer asks first: Spot quota, sizes and placement score."""
    usages = shell.ask("vm", "list-usage", "-l", "eastus")
    spot = [u for u in usages if u["name"]["value"] == "lowPriorityCores"]
    expect(len(spot) == 1, "the Spot quota", usages)
    skus = shell.ask("vm", "list-skus", "-l", "eastus", "--size", SIZE, "--all")
    expect({s["name"] for s in skus} == {SIZE}, "the size", skus)
    score = shell.ask(
        *("compute-recommender", "spot-placement-score", "-l", "eastus"),
        *("--desired-locations", "eastus", "--desired-sizes", f"[{{sku:{SIZE}}}]"),
        *("--desired-count", "2", "--availability-zones", "false"),
    )
    expect(score["placementScores"] != [], "a score", score)


def deployments(shell: Shell) -> None:
    """Deploy the template of infra/ as its README says."""
    where: tuple[str, ...] = ("-g", "az", "--template-file", str(TEMPLATE), "--name", "rekindle")
    where += ("--parameters", f"@{TEMPLATE.with_name('parameters.json')}", *GIVEN)
    shell.ask("deployment", "group", "validate", *where)
    made = shell.ask("deployment", "group", "create", *where)
    expect(made["properties"]["provisioningState"] == "Succeeded", "success", made)
    kinds = {row["type"].lower() for row in shell.ask("resource", "list", "-g", "az")}
    expect("microsoft.network/virtualnetworks" in kinds, "a network", kinds)


def sign_out(shell: Shell) -> None:
    """Leave nothing behind."""
    shell.run("group", "delete", "-n", "az", "--yes")
    expect(shell.run("group", "exists", "-n", "az").strip() == "false", "no group", "az")


STORY = (sign_in, scale_sets, creations, market, deployments, sign_out)
PAGE = "az-session.txt"


def _arm(shell: Shell) -> str:
    return shell.emulator.arm_url


def main() -> int:
    """Run the whole story and print its transcript."""
    az = program()
    if az is None:
        sys.stderr.write("az is not installed: make az\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        emulator = Emulator(Path(folder) / "state", "--hollow", "--notice-seconds", "2")
        transcript = Transcript(Path(folder))
        try:
            shell = Shell(az, emulator, Path(folder), transcript.say)
            for part in STORY:
                part(shell)
        except Refused as refused:
            sys.stderr.write(f"{refused}\n")
            return 1
        finally:
            emulator.stop()
    transcript.keep(PAGE)
    print("az: ok")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
