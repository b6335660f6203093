"""Classify what a machine reports of its boot before its supervisor runs. Pure."""

import re
from dataclasses import dataclass
from enum import StrEnum

from service.domain.lifecycle.attempt import CANNOT_BOOT

LONGEST_TEXT = 400  # characters of what a program said, in a sentence
_TRIES = 3  # after which what a registry says is believed; cloud-init makes ten


class BootPhase(StrEnum):
    """A phase of cloud-init; see `service/cloud/cloud_init.py`."""

    PULL_IMAGE = "pull_image"
    MOUNT_DISKS = "mount_disks"
    AWAIT_DRIVER = "await_driver"
    FIREWALL = "firewall"
    START_SUPERVISOR = "start_supervisor"


class BootStatus(StrEnum):
    """The status of a boot phase."""

    BEGUN = "begun"
    FAILED = "failed"  # it is tried again, or the boot goes on without it
    GAVE_UP = "gave_up"  # the last try failed: this machine will not join


@dataclass(frozen=True, kw_only=True)
class BootReport:
    """One report; ``text`` has a line for each failed try."""

    phase: BootPhase
    status: BootStatus
    machine: str
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class BootFailureCause:
    """A kind of failure.

    ``non_retryable_after``: after this many tries in a row, no retry and no other machine would
    succeed; 0: a retry may succeed.
    """

    name: str
    pattern: str  # found somewhere in what the program said
    remedy: str
    non_retryable_after: int = 0


# First match wins. The texts are those of Docker and of registries as users report them:
# dstackai/dstack 2020 (disk), moby/moby 31430 (manifest), Azure/AKS 4459 and 4593 and
# microsoft/AzureTRE 861 (sign-in), Azure/acr 124 (a wrong name reads as a sign-in that is refused),
# Microsoft Learn, "Configure rules to access an Azure container registry behind a firewall".
CAUSES = (
    BootFailureCause(
        name="disk_full",
        pattern="no space left on device",
        remedy="The image does not fit on the machine's disk. Use a smaller image, or a VM size"
        " with a larger temporary disk.",
    ),
    BootFailureCause(
        name="registry_unreachable",
        pattern=r"no such host|time(d )?[- ]?out|deadline exceeded|connection re(fused|set)"
        r"|request canceled|unreachable|no route to host|name resolution|tls handshake|: EOF",
        remedy="The registry cannot be reached. Check its name, DNS, and the outbound rules of the"
        " subnet.",
    ),
    BootFailureCause(
        name="registry_busy",
        pattern=r"toomanyrequests|too many requests|unexpected (HTTP )?status.*\b5\d\d\b"
        r"|internal server error|service unavailable|bad gateway",
        remedy="The registry fails, or limits the rate of pulls. It is tried again.",
    ),
    BootFailureCause(
        name="registry_firewall",
        pattern=r"is not allowed access|aka\.ms/acr/firewall",
        remedy="The registry's firewall refuses the machines. Allow their subnet, or give it a"
        " private endpoint.",
        non_retryable_after=_TRIES,
    ),
    BootFailureCause(
        name="no_docker",
        pattern=r"docker: (command )?not found",
        remedy="The machines' image has no Docker. Check REKINDLE_AZURE_IMAGE.",
        non_retryable_after=1,
    ),
    BootFailureCause(
        name="image_not_found",
        pattern=r"manifest unknown|manifest for .+ not found|name unknown|: not found\b"
        r"|invalid reference format",
        remedy="The registry has no such image or tag. Check REKINDLE_TRAINER_IMAGE.",
        non_retryable_after=_TRIES,
    ),
    BootFailureCause(
        name="sign_in_refused",
        pattern=r"unauthorized|access denied|access to the resource is denied|forbidden"
        r"|authentication required|failed to authorize|no basic auth credentials",
        remedy="The registry refuses the machines' sign-in. Give the nodes' identity the role"
        " AcrPull on the registry, and check REKINDLE_AZURE_IDENTITY_ID and the name of the image"
        " in REKINDLE_TRAINER_IMAGE.",
        non_retryable_after=_TRIES,
    ),
    BootFailureCause(
        name="no_gpu_runtime",
        pattern="could not select device driver",
        remedy="The machines' image has no NVIDIA Container Toolkit. Check REKINDLE_AZURE_IMAGE.",
        non_retryable_after=1,
    ),
)
_OTHER = BootFailureCause(
    name="other", pattern="", remedy="See the text, and the log of the machine."
)
_NO_FIREWALL = BootFailureCause(
    name="no_firewall",
    pattern="",
    remedy="The machine's own firewall cannot be set up, and without it nothing of a job runs."
    " Check that REKINDLE_AZURE_IMAGE has iptables and systemd.",
    non_retryable_after=1,
)


def failure_causes(report: BootReport) -> list[BootFailureCause]:
    """Return the cause of each failed try, oldest first; at least one."""
    if report.phase is BootPhase.FIREWALL:
        return [_NO_FIREWALL]
    lines = [line for line in report.text.splitlines() if line.strip()]
    return [_cause(line) for line in lines] or [_OTHER]


def is_not_retryable(report: BootReport) -> bool:
    """Return whether the machine gave up and no later try or machine would succeed.

    A new managed identity may be refused for two minutes (kubernetes/kubernetes 92326), and a
    registry in trouble may know none of its images: one try proves too little.
    """
    causes = failure_causes(report)
    has_given_up = report.status is BootStatus.GAVE_UP
    return has_given_up and all(0 < cause.non_retryable_after <= len(causes) for cause in causes)


def failure_sentence(report: BootReport) -> str:
    """Return what failed, what to do, and the last output of the program."""
    why = failure_causes(report)[-1]
    lines = report.text.splitlines()
    last = " ".join(lines[-1].split())[-LONGEST_TEXT:] if lines else ""
    output = f" ({last})" if last else ""
    return f"{report.machine}, {report.phase}: {why.remedy}{output}"


def final_reason(report: BootReport) -> str:
    """Return why the attempt ends after a failure without retry; begins with CANNOT_BOOT."""
    return f"{CANNOT_BOOT}: {failure_sentence(report)}"


def _cause(line: str) -> BootFailureCause:
    matches = (c for c in CAUSES if re.search(c.pattern, line, re.IGNORECASE))
    return next(matches, _OTHER)
