"""Record sessions of the real `az` with the emulator: `make az`."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.emulated.process import SUBSCRIPTION, TENANT, Emulator, wait_for
from tests.system.clients.transcripts import Transcript

ROOT = Path(__file__).parents[3]
SECONDS = 120.0  # for one command


def program() -> Path | None:
    """Where `az` is, or None."""
    path = Path(os.environ.get("REKINDLE_AZ", ROOT / ".venv-az" / "bin" / "az"))  # noqa: TID251 - tests have no settings
    return path if path.exists() else None


class Refused(AssertionError):
    """A command failed, or did not say what it should."""


@dataclass
class Shell:
    """`az`, signed in to one emulator; keeps a transcript."""

    az: Path
    emulator: Emulator
    folder: Path
    say: Callable[[str], None] = field(default=lambda _: None)

    def run(self, *arguments: str) -> str:
        """One command; raises Refused with what it printed when it fails."""
        abridged = (short(argument.replace(f"{ROOT}/", "")) for argument in arguments)
        self.say(f"$ az {' '.join(abridged)}")
        process = subprocess.run(
            [str(self.az), *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if process.returncode != 0:
            raise Refused(
                f"az {' '.join(arguments)}: {process.returncode}\n{process.stderr}{process.stdout}"
            )
        return process.stdout

    def ask(self, *arguments: str) -> Any:  # noqa: ANN401 - whatever JSON it prints
        """One command that prints JSON."""
        answer = json.loads(self.run(*arguments, "--output", "json") or "null")
        self.say("  " + short(json.dumps(answer), 160))
        return answer

    def _environment(self) -> dict[str, str]:
        variables = {
            "AZURE_CONFIG_DIR": str(self.folder / "az"),
            "HOME": str(self.folder),  # where --generate-ssh-keys leaves them
            "REQUESTS_CA_BUNDLE": self.emulator.ca,
            "AZURE_CORE_INSTANCE_DISCOVERY": "false",
            "AZURE_CORE_COLLECT_TELEMETRY": "false",
            "AZURE_CORE_ONLY_SHOW_ERRORS": "true",
        }
        return os.environ | variables  # noqa: TID251 - a child's environment


def expect(holds: bool, expectation: str, output: object) -> None:
    """Raise Refused with what was seen, unless it holds."""
    if not holds:
        raise Refused(f"expected {expectation}, but az said {output!r}")


def short(text: str, most: int = 80) -> str:
    """Return one line of at most so many characters."""
    text = text.replace("\n", " ")
    return text if len(text) <= most else text[: most - 3] + "..."


GROUP = ("-g", "az")
LINUX = ("--image", "Ubuntu2204", "--vm-sku", "Standard_D2s_v5", "--admin-username", "azureuser")
UNIFORM = (*LINUX, "--generate-ssh-keys", "--orchestration-mode", "Uniform")
SHOWN = (
    "{mode: orchestrationMode, capacity: sku.capacity, zones: zones, one: singlePlacementGroup,"
    " priority: virtualMachineProfile.priority, evicted: virtualMachineProfile.evictionPolicy,"
    " maxPrice: virtualMachineProfile.billingProfile.maxPrice, identity: identity.type,"
    " sizes: skuProfile.vmSizes[].name}"
)


def uniform(shell: Shell) -> None:
    """Linux machines behind the load balancer that az makes."""
    scale_set = _create(shell, "uniform", *UNIFORM, "--instance-count", "2")
    expect(scale_set == {"mode": "Uniform", "capacity": 2, "one": True}, "a Uniform set", scale_set)
    rules = ("network", "lb", "inbound-nat-rule", "list", *GROUP, "--lb-name", "uniformLB")
    ports = shell.ask(*rules, "--query", "[].backendPort")
    expect(ports == [22], "a NAT rule for SSH", ports)
    group = ("network", "nsg", "show", *GROUP, "-n", "uniformNSG")
    names = shell.ask(*group, "--query", "defaultSecurityRules[].name")
    expect("DenyAllInBound" in names and len(names) == 6, "Azure's own rules", names)


def spot(shell: Shell) -> None:
    """Spot machines at whatever the price is, deleted when they are evicted."""
    options = ("--priority", "Spot", "--max-price", "-1", "--eviction-policy", "Delete")
    scale_set = _create(shell, "spot", *UNIFORM, "--instance-count", "1", *options)
    expected = {"priority": "Spot", "evicted": "Delete", "maxPrice": -1}
    expect(expected.items() <= scale_set.items(), "a Spot set", scale_set)


def flexible(shell: Shell) -> None:
    """Create a scale set without naming a mode; az makes a Flexible one."""
    scale_set = _create(shell, "flexible", *LINUX, "--generate-ssh-keys", "--instance-count", "2")
    expect(
        scale_set == {"mode": "Flexible", "capacity": 2, "one": False}, "a Flexible set", scale_set
    )
    names = shell.ask("vm", "list", *GROUP, "--query", "[].storageProfile.osDisk.osType")
    expect(names == ["Linux", "Linux"], "two virtual machines", names)


def empty(shell: Shell) -> None:
    """Create a Flexible scale set that has no machine profile yet."""
    options = ("--orchestration-mode", "Flexible", "--platform-fault-domain-count", "1")
    scale_set = _create(shell, "empty", *options)
    expect(scale_set == {"mode": "Flexible", "one": False}, "an empty set", scale_set)


def zonal(shell: Shell) -> None:
    """One placement group in one of the zones."""
    options = ("--single-placement-group", "true", "--zones", "1")
    scale_set = _create(shell, "zonal", *UNIFORM, "--instance-count", "2", *options)
    expect((scale_set["zones"], scale_set["one"]) == (["1"], True), "a zonal set", scale_set)


def in_a_network(shell: Shell) -> None:
    """In a subnet that is there, without a load balancer, with an identity."""
    shell.ask("network", "vnet", "create", *GROUP, "-n", "net", "--subnet-name", "nodes")
    options = ("--lb", "", "--vnet-name", "net", "--subnet", "nodes", "--assign-identity")
    scale_set = _create(shell, "inside", *UNIFORM, "--instance-count", "1", *options)
    expect(scale_set["identity"] == "SystemAssigned", "an identity", scale_set)


def custom_data(shell: Shell) -> None:
    """With cloud-init, a password and an OS disk that is not kept."""
    file = shell.folder / "init.yaml"
    file.write_text("#cloud-config\nruncmd: [echo]\n")
    password = ("--authentication-type", "password", "--admin-password", "Not-a-secret-1")
    options = ("--custom-data", str(file), "--ephemeral-os-disk", "--orchestration-mode", "Uniform")
    scale_set = _create(shell, "custom", *LINUX, "--instance-count", "1", *password, *options)
    expect(scale_set["capacity"] == 1, "a machine", scale_set)


def mixed(shell: Shell) -> None:
    """Create a set with an instance mix: Azure takes the first available one of the sizes."""
    sizes = ("--skuprofile-vmsizes", "Standard_D2s_v5", "Standard_D4s_v5")
    order = ("--skuprofile-allocation-strategy", "Prioritized", "--skuprofile-rank", "0", "1")
    image = ("--image", "Ubuntu2204", "--admin-username", "azureuser", "--generate-ssh-keys")
    scale_set = _create(
        shell, "mix", *image, "--vm-sku", "Mix", *sizes, *order, "--instance-count", "1"
    )
    expect(scale_set["sizes"] == ["Standard_D2s_v5", "Standard_D4s_v5"], "two sizes", scale_set)


def _create(shell: Shell, name: str, *arguments: str) -> dict[str, Any]:
    """Create it and show what is there; members that are null are left out."""
    created = shell.ask("vmss", "create", *GROUP, "-n", name, *arguments)
    expect(created["vmss"]["provisioningState"] == "Succeeded", "success", created)
    scale_set = shell.ask("vmss", "show", *GROUP, "-n", name, "--query", SHOWN)
    return {member: value for member, value in scale_set.items() if value is not None}


FORMS = (uniform, spot, flexible, empty, zonal, in_a_network, custom_data, mixed)


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
    created = shell.ask("group", "create", "-n", "az", "-l", "eastus")
    expect(created["properties"]["provisioningState"] == "Succeeded", "a group", created)
    kind = ("--orchestration-mode", "Uniform", "--vm-sku", SIZE, "--instance-count", "2")
    spot_options = ("--priority", "Spot", "--eviction-policy", "Delete", "--ephemeral-os-disk")
    image = ("--image", "microsoft-dsvm:ubuntu-hpc:2204:latest", "--admin-username", "azureuser")
    shell.ask("vmss", "create", *group, *name, *kind, *spot_options, *image, "--generate-ssh-keys")
    wait_for(lambda: shell.emulator.machines("rk-az")[1:])
    scale_set = shell.ask("vmss", "show", *group, *name)
    expect(scale_set["sku"]["capacity"] == 2, "two machines", scale_set["sku"])
    expect(
        [s["name"] for s in shell.ask("vmss", "list", *group)] == ["rk-az"], "the list", scale_set
    )
    shell.ask("vmss", "scale", *group, *name, "--new-capacity", "3")
    rows = shell.ask("vmss", "list-instances", *group, *name)
    expect([r["instanceId"] for r in rows] == ["0", "1", "2"], "three instances", rows)
    view = shell.ask("vmss", "get-instance-view", *group, *name)
    expect(view["virtualMachine"]["statusesSummary"] != [], "a summary", view)
    instance = shell.ask("vmss", "get-instance-view", *group, *name, "--instance-id", "1")
    codes = [status["code"] for status in instance["statuses"]]
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
    for form in FORMS:
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
    arguments: tuple[str, ...] = (
        "-g",
        "az",
        "--template-file",
        str(TEMPLATE),
        "--name",
        "rekindle",
    )
    arguments += ("--parameters", f"@{TEMPLATE.with_name('parameters.json')}", *GIVEN)
    shell.ask("deployment", "group", "validate", *arguments)
    deployment = shell.ask("deployment", "group", "create", *arguments)
    expect(deployment["properties"]["provisioningState"] == "Succeeded", "success", deployment)
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
            for chapter in STORY:
                chapter(shell)
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
