"""When memory runs out or machines cannot boot: what is tried with less, and what is given up."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.lifecycle.attempt import (
    CANNOT_BOOT,
    MAX_FRUITLESS,
    AttemptView,
    MoveAttempt,
    OpenGeneration,
    RequeueAttempt,
)
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
from service.domain.lifecycle.oom_fallback import OomFallback, rungs_from
from service.domain.states import AttemptState, Outcome
from tests.unit.attempts.attempt_facts import (
    ALL_FAILED,
    BOOTED,
    NOW,
    PACE,
    RUNNING,
    STARTING,
    TRAINING,
    attempt,
    reopened,
)
from trainer.contract import Rung
from trainer.data.order import micro_batch_samples

FOUR = Rung(micro_batch=4, gradient_checkpointing=False)
LOWEST = Rung(micro_batch=1, gradient_checkpointing=True)
RUNGS = st.builds(Rung, micro_batch=st.integers(1, 1024), gradient_checkpointing=st.booleans())


@pytest.mark.parametrize(
    ("planned", "sizes"),
    [
        (FOUR, [4, 2, 1, 1]),
        (Rung(micro_batch=12, gradient_checkpointing=True), [12, 6, 3, 1]),
        (Rung(micro_batch=7, gradient_checkpointing=False), [7, 1, 1]),
        (LOWEST, [1]),
    ],
)
def test_micro_batches_get_smaller_and_then_activations_are_computed_again(
    planned: Rung, sizes: list[int]
) -> None:
    rungs = list(rungs_from(planned))

    assert [rung.micro_batch for rung in rungs] == sizes
    assert rungs[-1].gradient_checkpointing
    assert all(r.gradient_checkpointing is planned.gradient_checkpointing for r in rungs[:-1])


@given(RUNGS)
def test_the_ladder_ends_and_leads_down_only(planned: Rung) -> None:
    rungs = list(rungs_from(planned))

    assert len(rungs) <= 12
    assert rungs[-1] == LOWEST
    for above, below in pairwise(rungs):
        assert below.micro_batch <= above.micro_batch
        assert below.gradient_checkpointing >= above.gradient_checkpointing
        assert above != below
        assert above.micro_batch % below.micro_batch == 0


@given(RUNGS, st.integers(1, 200), st.integers(1, 5))
def test_every_rung_trains_the_same_samples_in_a_step(
    planned: Rung, global_batch: int, world: int
) -> None:
    for rung in rungs_from(planned):
        ranks = [
            micro_batch_samples(100, global_batch, rung.micro_batch, world, rank)
            for rank in range(world)
        ]
        samples = sorted(s for rank in ranks for micro in rank for s in micro)
        assert samples == list(range(100, 100 + global_batch))
        assert len({len(rank) for rank in ranks}) == 1


def ran_out(ladder: OomFallback, **changes: object) -> AttemptView:
    """Everybody has failed in step 17, as memory ran out there."""
    return replace(ALL_FAILED, oom_fallback=replace(ladder, oom_step=17), **changes)  # type: ignore[arg-type]


def test_memory_that_runs_out_leads_to_the_next_rung_and_nobody_is_to_blame() -> None:
    view = ran_out(OomFallback(planned=FOUR), opened_at=NOW)
    step = next_step(attempt(RUNNING, trainer_errors=2), view, NOW, PACE)

    assert isinstance(step, OpenGeneration)
    assert step.rung == replace(FOUR, micro_batch=2)
    assert step.because == "micro-batch 2 instead of 4: memory ran out in step 17"
    assert not step.after_error


def test_it_goes_down_from_the_rung_on_which_it_is() -> None:
    reduced = replace(FOUR, micro_batch=1)
    step = next_step(attempt(RUNNING), ran_out(OomFallback(planned=FOUR, rung=reduced)), NOW, PACE)

    assert isinstance(step, OpenGeneration)
    assert step.rung == LOWEST
    assert "activations computed again" in step.because


def test_only_memory_that_runs_out_moves_an_attempt_down_a_ladder_that_its_plan_has() -> None:
    two = replace(FOUR, micro_batch=2)
    view = replace(ALL_FAILED, oom_fallback=OomFallback(planned=FOUR, rung=two))
    step = next_step(attempt(RUNNING), view, NOW, PACE)

    assert step == replace(reopened(view, after_error=True), rung=two)

    unplanned = ran_out(OomFallback())
    step_expected = reopened(unplanned, after_error=True)
    assert next_step(attempt(RUNNING), unplanned, NOW, PACE) == step_expected


def test_starts_that_were_fruitless_on_other_grounds_do_not_cut_the_ladder_short() -> None:
    view = ran_out(OomFallback(planned=FOUR), fruitless=MAX_FRUITLESS)

    assert isinstance(next_step(attempt(RUNNING), view, NOW, PACE), OpenGeneration)


@pytest.mark.parametrize(
    ("planned", "tried"),
    [
        (FOUR, "micro-batch 4, 2 and 1, then gradient_checkpointing, did not fit"),
        (LOWEST, "micro-batch 1, with gradient_checkpointing, did not fit"),
    ],
)
def test_on_the_lowest_rung_the_job_ends_and_says_what_was_tried_and_what_to_do(
    planned: Rung, tried: str
) -> None:
    view = ran_out(OomFallback(planned=planned, rung=LOWEST))
    step = next_step(attempt(STARTING), view, NOW, PACE)

    assert isinstance(step, MoveAttempt)
    assert step.outcome is Outcome.TRAINER_ERROR
    assert step.reason.startswith("memory ran out in step 17")
    assert tried in step.reason
    assert "LoRA or QLoRA" in step.reason


def test_on_the_lowest_rung_a_generation_that_committed_something_is_followed_by_another() -> None:
    view = ran_out(OomFallback(planned=FOUR, rung=LOWEST), fruitless=0)
    step = next_step(attempt(RUNNING, trainer_errors=2), view, NOW, PACE)

    assert step == replace(reopened(view, after_error=False), rung=LOWEST)


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

    assert [failure_cause.name for failure_cause in failure_causes(report)] == [cause]


def test_every_cause_is_met_by_a_message_that_was_seen() -> None:
    assert {cause.name for cause in CAUSES} < set(SEEN.values())


@pytest.mark.parametrize(
    "cause", [c for c in CAUSES if c.non_retryable_after > 1], ids=lambda c: c.name
)
def test_a_registry_is_believed_once_it_has_said_so_again_and_again(cause: object) -> None:
    text = next(text for text, name in SEEN.items() if name == getattr(cause, "name", ""))

    def gave_up(*lines: str) -> bool:
        log = "\n".join(lines)
        return is_not_retryable(
            BootReport(phase=BootPhase.PULL_IMAGE, status=BootStatus.GAVE_UP, machine="m", text=log)
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
    view = replace(TRAINING, stepped=False, cannot_boot=WHY)

    assert next_step(attempt(STARTING), view, NOW, PACE) == RequeueAttempt()


def test_a_cancel_of_machines_that_cannot_boot_is_a_cancel() -> None:
    cancelled = attempt(STARTING, stop_as=Outcome.CANCELLED)
    step = next_step(cancelled, replace(BOOTED, cannot_boot=WHY), NOW, PACE)

    assert isinstance(step, MoveAttempt)
    assert step.outcome is Outcome.CANCELLED
