"""`az vmss create` in the forms that people use; each makes its own network and scale set.

What az deploys for each is in azure-cli, `create_vmss` of its vm module.
"""

from typing import Any

from tests.system.clients.az_shell import Shell, expect

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
    shown = _create(shell, "uniform", *UNIFORM, "--instance-count", "2")
    expect(shown == {"mode": "Uniform", "capacity": 2, "one": True}, "a Uniform set", shown)
    rules = ("network", "lb", "inbound-nat-rule", "list", *GROUP, "--lb-name", "uniformLB")
    found = shell.ask(*rules, "--query", "[].backendPort")
    expect(found == [22], "a NAT rule for SSH", found)
    group = ("network", "nsg", "show", *GROUP, "-n", "uniformNSG")
    names = shell.ask(*group, "--query", "defaultSecurityRules[].name")
    expect("DenyAllInBound" in names and len(names) == 6, "Azure's own rules", names)


def spot(shell: Shell) -> None:
    """Spot machines at whatever the price is, deleted when they are evicted."""
    asked = ("--priority", "Spot", "--max-price", "-1", "--eviction-policy", "Delete")
    shown = _create(shell, "spot", *UNIFORM, "--instance-count", "1", *asked)
    wanted = {"priority": "Spot", "evicted": "Delete", "maxPrice": -1}
    expect(wanted.items() <= shown.items(), "a Spot set", shown)


def flexible(shell: Shell) -> None:
    """Create a scale set without naming a mode; az makes a Flexible one."""
    shown = _create(shell, "flexible", *LINUX, "--generate-ssh-keys", "--instance-count", "2")
    expect(shown == {"mode": "Flexible", "capacity": 2, "one": False}, "a Flexible set", shown)
    names = shell.ask("vm", "list", *GROUP, "--query", "[].storageProfile.osDisk.osType")
    expect(names == ["Linux", "Linux"], "two virtual machines", names)


def empty(shell: Shell) -> None:
    """Create a Flexible scale set that has no machine profile yet."""
    asked = ("--orchestration-mode", "Flexible", "--platform-fault-domain-count", "1")
    shown = _create(shell, "empty", *asked)
    expect(shown == {"mode": "Flexible", "one": False}, "an empty set", shown)


def zonal(shell: Shell) -> None:
    """One placement group in one of the zones."""
    asked = ("--single-placement-group", "true", "--zones", "1")
    shown = _create(shell, "zonal", *UNIFORM, "--instance-count", "2", *asked)
    expect((shown["zones"], shown["one"]) == (["1"], True), "a zonal set", shown)


def in_a_network(shell: Shell) -> None:
    """In a subnet that is there, without a load balancer, with an identity."""
    shell.ask("network", "vnet", "create", *GROUP, "-n", "net", "--subnet-name", "nodes")
    asked = ("--lb", "", "--vnet-name", "net", "--subnet", "nodes", "--assign-identity")
    shown = _create(shell, "inside", *UNIFORM, "--instance-count", "1", *asked)
    expect(shown["identity"] == "SystemAssigned", "an identity", shown)


def custom_data(shell: Shell) -> None:
    """With cloud-init, a password and an OS disk that is not kept."""
    file = shell.folder / "init.yaml"
    file.write_text("#cloud-config\nruncmd: [echo]\n")
    asked = ("--authentication-type", "password", "--admin-password", "Not-a-secret-1")
    more = ("--custom-data", str(file), "--ephemeral-os-disk", "--orchestration-mode", "Uniform")
    shown = _create(shell, "custom", *LINUX, "--instance-count", "1", *asked, *more)
    expect(shown["capacity"] == 1, "a machine", shown)


def mixed(shell: Shell) -> None:
    """Create a set with an instance mix: Azure takes the first available one of the sizes."""
    sizes = ("--skuprofile-vmsizes", "Standard_D2s_v5", "Standard_D4s_v5")
    order = ("--skuprofile-allocation-strategy", "Prioritized", "--skuprofile-rank", "0", "1")
    image = ("--image", "Ubuntu2204", "--admin-username", "azureuser", "--generate-ssh-keys")
    shown = _create(
        shell, "mix", *image, "--vm-sku", "Mix", *sizes, *order, "--instance-count", "1"
    )
    expect(shown["sizes"] == ["Standard_D2s_v5", "Standard_D4s_v5"], "two sizes", shown)


def _create(shell: Shell, name: str, *asked: str) -> dict[str, Any]:
    """Create it and show what is there; members that are null are left out."""
    made = shell.ask("vmss", "create", *GROUP, "-n", name, *asked)
    expect(made["vmss"]["provisioningState"] == "Succeeded", "success", made)
    shown = shell.ask("vmss", "show", *GROUP, "-n", name, "--query", SHOWN)
    return {member: value for member, value in shown.items() if value is not None}


FORMS = (uniform, spot, flexible, empty, zonal, in_a_network, custom_data, mixed)
