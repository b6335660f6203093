"""docs/emulator-operations.md, from the emulator's routes."""

import re
from collections import defaultdict

from emulator.app import PARTS
from emulator.resources.table import KINDS
from tests.repository.sources import ROOT

PAGE = ROOT / "docs" / "emulator-operations.md"
VERBS = ("HEAD", "GET", "PUT", "PATCH", "POST", "DELETE")
IGNORED = (
    ("`spotRestorePolicy` of a scale set", "kept; nothing evicted comes back"),
    ("`scheduledEventsProfile`, `capacityReservation`", "kept; nothing is announced or reserved"),
    ("`scaleInPolicy`", "kept; the newest instances go first"),
    ("`upgradePolicy`", "kept; no rolling or automatic upgrade"),
    ("`automaticRepairsPolicy`, extensions, health probes", "kept; nothing is probed"),
    ("images, disks, load balancers", "kept; VMs are processes and share one network"),
    ("`$select` of instances", "passed over"),
    (
        "members that are not named in `emulator/compute/rules/scale_set_form.py`",
        "kept and shown again",
    ),
)
ABSENT = (
    "Deployments: what-if, cancel, delete, export; mode Complete, copy loops, symbolic names",
    "Microsoft Graph, federated credentials, user accounts, groups, deny assignments",
    "Microsoft.Quota; Resource Graph but for one form of query; Cost Management but for sums",
    "Networks and databases: subnets and rules as resources of their own, checks of rules",
    "Scale sets: run commands, reimage, `manualUpgrade`, `scaleOut`, priority mixes, `$filter`",
    "Single virtual machines, disks, snapshots, galleries, network interfaces",
)


def page() -> str:
    """Return the whole page."""
    rows = [f"| `{path}` | {', '.join(verbs)} |" for path, verbs in _offered()]
    kinds = ", ".join(f"`{kind.type}`" for kind in sorted(KINDS.values(), key=lambda k: k.type))
    return "\n".join(
        [
            "# Operations of the emulator",
            "",
            "For clients of [the emulator](emulator.md): what it offers, takes without effect, and",
            "lacks.",
            "",
            "Generated from the emulator's routes by `make docs`; do not edit.",
            "",
            "## Offered",
            "",
            "HEAD of any of these that has GET answers 204 or 404.",
            "",
            "| path | methods |",
            "|---|---|",
            *rows,
            "",
            f"At `{{rest}}` of a resource group: {kinds}.",
            "",
            "## Accepted without effect",
            "",
            "| what | what becomes of it |",
            "|---|---|",
            *(f"| {feature} | {effect} |" for feature, effect in IGNORED),
            "",
            "## Absent",
            "",
            "Answered 400 or 404:",
            "",
            *(f"- {feature}" for feature in ABSENT),
            "",
        ]
    )


def _offered() -> list[tuple[str, list[str]]]:
    verbs_by_path: defaultdict[str, set[str]] = defaultdict(set)
    for verb, path, _ in (route for part in PARTS for route in part.arm):
        verbs_by_path[re.sub(r"\{(\w+):path\}", r"{\1}", path)].add(verb)
    return [
        (path, [v for v in VERBS if v in verbs_by_path[path]]) for path in sorted(verbs_by_path)
    ]
