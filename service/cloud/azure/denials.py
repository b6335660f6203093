"""Find which Azure Policy denied a request, and who can lift it. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

_IDENTIFIERS = re.compile(r"Policy identifiers: '(\[.*\])'", re.DOTALL)


# It takes `policyExemptions/write` on what is exempted and `exempt/Action` on the assignment
# (azure-docs, governance/policy/concepts/exemption-structure); these roles have both.
REMEDY = (
    "An Owner or Resource Policy Contributor of the assignment's scope can exempt the resource"
    " group (az policy exemption create); or set what the policy asks for in"
    " REKINDLE_AZURE_POLICY (tags, zones, disks)."
)


@dataclass(frozen=True, kw_only=True)
class Denial:
    """One policy that denied a request."""

    definition: str  # its display name
    assignment: str  # the display name
    assignment_id: str

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> Self:
        """Parse `additionalInfo` of type PolicyViolation.

        Its members: azure-docs, automation/enforce-job-execution-hybrid-worker.
        """
        name = info.get("policyAssignmentDisplayName") or info.get("policyAssignmentName")
        definition = info.get("policyDefinitionDisplayName") or info.get("policyDefinitionName")
        return cls(
            definition=str(definition or "without a name"),
            assignment=str(name or "without a name"),
            assignment_id=str(info.get("policyAssignmentId") or ""),
        )

    @classmethod
    def from_identifiers(cls, identifiers: Mapping[str, Any]) -> Self:
        """Parse the list that ends Azure's message; an instance view has nothing else."""
        assignment = identifiers.get("policyAssignment")
        definition = identifiers.get("policyDefinition")
        return cls(
            definition=str((definition or {}).get("name") or "without a name"),
            assignment=str((assignment or {}).get("name") or "without a name"),
            assignment_id=str((assignment or {}).get("id") or ""),
        )

    def __str__(self) -> str:
        suffix = f", {self.assignment_id}" if self.assignment_id else ""
        return f"'{self.definition}' (assignment '{self.assignment}'{suffix})"


def denials(message: str, infos: Sequence[Mapping[str, Any]] = ()) -> list[Denial]:
    """Name the policies; ``infos`` are those of PolicyViolation, if the answer had any."""
    return [Denial.from_info(info) for info in infos] or list(_parse_message(message))


def _parse_message(message: str) -> Iterator[Denial]:
    match = _IDENTIFIERS.search(message)
    try:
        rows = json.loads(match[1]) if match else []
    except ValueError:
        return
    for row in rows:
        if isinstance(row, dict):
            yield Denial.from_identifiers(row)
