"""What is wrong with a boot, by what Docker says."""

from dataclasses import replace

import pytest

from service.domain.lifecycle.attempt import CANNOT_BOOT, MoveAttempt, RequeueAttempt
from service.domain.lifecycle.attempt_steps import next_step
from service.domain.lifecycle.boot_report import (
    CAUSES,
    BootPhase,
    BootReport,
    BootStatus,
    failure_causes,
    final_reason,
    is_not_retryable,
)
from service.domain.states import AttemptState, Outcome
from tests.unit.attempts.attempt_facts import BOOTED, NOW, PACE, STARTING, TRAINING, attempt

DAEMON = "Error response from daemon: "
# As users report them: the repository and number of the issue is beside each.
SEEN = {
    # microsoft/AzureTRE 861
    f'{DAEMON}Get "https://r.azurecr.io/v2/a/manifests/dev": unauthorized: authentication required,'
    " visit https://aka.ms/acr/authorization for more information.": "sign_in_refused",
    # Azure/AKS 4593
    'failed to resolve reference "r.azurecr.io/a:3": failed to authorize: failed to fetch oauth'
    " token: unexpected status from GET request to https://r.azurecr.io/oauth2/token: 401"
    " Unauthorized": "sign_in_refused",
    f"{DAEMON}pull access denied for a/b, repository does not exist or may require 'docker login':"
    " denied: requested access to the resource is denied": "sign_in_refused",
    f"{DAEMON}denied: client with IP '20.1.2.3' is not allowed access, refer"
    " https://aka.ms/acr/firewall to grant access.": "registry_firewall",
    # datastax-archive/docker-images 78
    f"{DAEMON}manifest for datastax/ddac:latest not found: manifest unknown: manifest"
    " unknown": "image_not_found",
    # Dstack-TEE/dstack 373
    f'{DAEMON}failed to resolve reference "docker.io/dstacktee/dstack-verifier:latest":'
    " docker.io/dstacktee/dstack-verifier:latest: not found": "image_not_found",
    # dstackai/dstack 2020
    "failed to register layer: write /opt/conda/lib/libmkl_avx.so.2: no space left on"
    " device": "disk_full",
    f'{DAEMON}Get "https://r.azurecr.io/v2/": net/http: request canceled while waiting for'
    " connection (Client.Timeout exceeded while awaiting headers)": "registry_unreachable",
    f'{DAEMON}Get "https://r.azurecr.io/v2/": dial tcp: lookup r.azurecr.io on 127.0.0.53:53: no'
    " such host": "registry_unreachable",
    f"{DAEMON}toomanyrequests: You have reached your pull rate limit.": "registry_busy",
    f"{DAEMON}received unexpected HTTP status: 503 Service Unavailable": "registry_busy",
    "sh: 1: docker: not found": "no_docker",
    f'docker: {DAEMON}could not select device driver "" with capabilities: [[gpu]].': (
        "no_gpu_runtime"
    ),
    "something else": "other",
}


@pytest.mark.parametrize(("text", "cause"), SEEN.items(), ids=list(SEEN.values()))
def test_each_message_has_its_cause(text: str, cause: str) -> None:
    report = BootReport(
        phase=BootPhase.PULL_IMAGE, status=BootStatus.GAVE_UP, machine="m", text=text
    )

    assert [found.name for found in failure_causes(report)] == [cause]


def test_every_cause_is_met_by_a_message_that_was_seen() -> None:
    assert {cause.name for cause in CAUSES} < set(SEEN.values())


@pytest.mark.parametrize(
    "cause", [c for c in CAUSES if c.non_retryable_after > 1], ids=lambda c: c.name
)
def test_a_registry_is_believed_once_it_has_said_so_again_and_again(cause: object) -> None:
    text = next(text for text, name in SEEN.items() if name == getattr(cause, "name", ""))

    def gave_up(*lines: str) -> bool:
        whole = "\n".join(lines)
        return is_not_retryable(
            BootReport(
                phase=BootPhase.PULL_IMAGE, status=BootStatus.GAVE_UP, machine="m", text=whole
            )
        )

    assert gave_up(text, text, text)
    assert not gave_up(text)
    assert not gave_up(text, "something else", text)


def test_a_machine_without_its_firewall_is_non_retryable_whatever_systemd_says() -> None:
    report = BootReport(
        phase=BootPhase.FIREWALL, status=BootStatus.GAVE_UP, machine="m", text="Job failed."
    )

    assert is_not_retryable(report)
    assert final_reason(report).startswith(
        f"{CANNOT_BOOT}: m, firewall: The machine's own firewall"
    )


def test_the_last_word_is_one_short_line_whatever_a_machine_says() -> None:
    text = "x" * 5000 + "\r\v denied: unauthorized " + "y" * 5000
    report = BootReport(
        phase=BootPhase.PULL_IMAGE, status=BootStatus.GAVE_UP, machine="m", text=text
    )

    assert len(final_reason(report).splitlines()) == 1
    assert len(final_reason(report)) < 1000


WHY = f"{CANNOT_BOOT}: why"
GIVEN_UP = MoveAttempt(to=AttemptState.TERMINATING, outcome=Outcome.UNRESPONSIVE, reason=WHY)


def test_machines_that_cannot_boot_are_given_up_at_once() -> None:
    assert next_step(attempt(STARTING), replace(BOOTED, cannot_boot=WHY), NOW, PACE) == GIVEN_UP


def test_what_one_machine_cannot_do_ends_no_generation() -> None:
    seen = replace(TRAINING, stepped=False, cannot_boot=WHY)

    assert next_step(attempt(STARTING), seen, NOW, PACE) == RequeueAttempt()


def test_a_cancel_of_machines_that_cannot_boot_is_a_cancel() -> None:
    cancelled = attempt(STARTING, stop_as=Outcome.CANCELLED)
    step = next_step(cancelled, replace(BOOTED, cannot_boot=WHY), NOW, PACE)

    assert isinstance(step, MoveAttempt)
    assert step.outcome is Outcome.CANCELLED
