"""Describe a job to its user: its phase, and a sentence that says what happens and why.

Pure: made from what the database knows at one moment. The phase is for machines, may get new
values, and is finer than OpenAI's status. Times are absolute, so that a sentence stays true while
it is read, and the same facts always give the same sentence.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from service.domain import humanize
from service.domain.humanize import count_machines
from service.domain.lifecycle.attempt import BOOT_FAILED, CANNOT_BOOT, FRUITLESS, HEAD_UNREADABLE
from service.domain.lifecycle.constraints import MOVES_TO_ON_DEMAND, RETURNS_TO_SPOT
from service.domain.lifecycle.job import NEVER_TRAINED, backoff_before_next
from service.domain.money.budget import without_remedy
from service.domain.queue.admission import QueueStanding
from service.domain.states import (
    ATTEMPT_WITH_OUTCOME,
    JOB_TERMINAL,
    AttemptState,
    JobState,
    Outcome,
)
from trainer.contract import DirectiveKind

_MIGRATES = {MOVES_TO_ON_DEMAND: "deadline_at_risk", RETURNS_TO_SPOT: "back_to_spot"}
_SERVICE_PAUSE_CODES = {  # why the service pauses a job
    NEVER_TRAINED: "never_trained",
    FRUITLESS: "never_saved",
    HEAD_UNREADABLE: "head_unreadable",
    CANNOT_BOOT: BOOT_FAILED,
}


@dataclass(frozen=True, kw_only=True)
class AttemptFacts:
    """The newest attempt, its generation and its nodes."""

    state: AttemptState
    since: datetime
    outcome: Outcome | None
    reason: str
    offering: str  # e.g. "Standard_ND96amsr_A100_v4 in eastus (spot)"
    region: str
    instance_count: int
    refusals: int = 0  # attempts in a row, this one included, that found no capacity
    duds: int = 0  # likewise, that never trained
    evicted_noticed: int = 0
    evicted_unnoticed: int = 0
    joined: int = 0  # nodes that have registered
    evicting: int = 0  # nodes with an eviction notice
    generation: int = 0  # 0: none was opened yet
    opened_at: datetime | None = None  # of that generation
    loaded_at: datetime | None = None  # when it had loaded model and checkpoint
    members: int = 0  # nodes of that generation
    from_step: int = 0  # of the checkpoint that the generation loads
    halt_kind: DirectiveKind | None = None
    halt_reason: str = ""


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """The facts of a job that its status message needs."""

    state: JobState
    since: datetime  # of the state
    total_steps: int
    reason: str = ""
    cancel_requested: bool = False
    pause_requested: bool = False
    over_budget: str = ""  # why there is no money for machines, since there is none
    waits_for: str = ""  # why no attempt is begun now, and until when
    asks_again_at: datetime | None = None  # the same moment, where it is known
    has_trained: bool = False
    step: int = 0  # the newest that is known to be done
    checkpoint_step: int = 0  # of the newest committed checkpoint; 0 for none
    evictions: int = 0  # attempts that ended so
    next_offering: str = ""  # where the next attempt is going to be
    queue: QueueStanding | None = None  # while it waits for admission
    help_wanted: str = ""  # what a person must do, until it is done
    attempt: AttemptFacts | None = None

    @property
    def intent(self) -> str:
        """Return where training starts or resumes, as a phrase."""
        if self.checkpoint_step:
            return f"go on from step {self.checkpoint_step}"
        return "start over, as no checkpoint was committed yet" if self.has_trained else "start"

    @property
    def its_machines(self) -> str:
        """Return the machines of the newest attempt, as a phrase."""
        count = self.attempt.instance_count if self.attempt else 0
        return humanize.pluralize(count, "its machine", "its machines")


@dataclass(frozen=True)
class StatusMessage:
    """The status shown to the user; ``since`` and ``next_try_at`` while it waits for machines."""

    phase: str
    code: str
    message: str
    since: datetime | None = None
    next_try_at: datetime | None = None  # None: retried at every poll


def status_message(job: JobFacts) -> StatusMessage:
    """Return the status message of a job at this moment."""
    status = _ending(job) or _request(job) or _life_cycle_status(job)
    is_paused_by_service = status.code in _SERVICE_PAUSE_CODES.values()
    if job.help_wanted and job.state not in JOB_TERMINAL and not is_paused_by_service:
        return replace(status, code="needs_help", message=job.help_wanted)
    return status


def _ending(job: JobFacts) -> StatusMessage | None:
    """Return the message of a job that is over or paused."""
    leaving = _leaving(job)
    match job.state:
        case JobState.SUCCEEDED:
            survived = humanize.survived_evictions(job.evictions)
            done = f"All {job.total_steps} steps are done"
            text = f"{done} and the model is ready{survived}.{leaving}"
            return StatusMessage("done", "succeeded", text)
        case JobState.FAILED:
            return StatusMessage("done", "failed", humanize.as_sentence(job.reason) + leaving)
        case JobState.CANCELLED:
            return _cancelled(job, leaving)
        case JobState.PAUSED if not job.cancel_requested:
            return _paused(job, leaving)
    return None


def _cancelled(job: JobFacts, leaving: str) -> StatusMessage:
    if job.over_budget and not job.cancel_requested:
        why = humanize.as_sentence(without_remedy(job.over_budget))
        text = f"Cancelled {_reached(job)}, as budget.on_exhausted is cancel. {why}{leaving}"
        return StatusMessage("done", "budget_exhausted", text)
    return StatusMessage("done", "cancelled", f"Cancelled by the user {_reached(job)}.{leaving}")


def _reached(job: JobFacts) -> str:
    if job.step:
        return f"after step {job.step}"
    trained = "when it had to start over, as no checkpoint was committed"
    return trained if job.has_trained else "before training began"


def _paused(job: JobFacts, leaving: str) -> StatusMessage:
    if job.over_budget and not job.pause_requested:
        why = humanize.as_sentence(job.over_budget)
        text = f"{why} With more money, it will {job.intent}.{leaving}"
        return StatusMessage("paused", "budget_exhausted", text)
    if not job.pause_requested:
        return _resumes(job)
    if code := next(
        (c for why, c in _SERVICE_PAUSE_CODES.items() if job.reason.startswith(why)), ""
    ):
        why = job.help_wanted or humanize.as_sentence(job.reason)
        text = f"{why} Once resumed, it will {job.intent}.{leaving}"
        return StatusMessage("paused", code, text)
    if job.attempt and job.attempt.outcome is Outcome.MISCONFIGURED:
        why = humanize.as_sentence(job.attempt.reason)
        text = f"{why} Once resumed, it will {job.intent}.{leaving}"
        return StatusMessage("paused", "misconfigured", text)
    text = f"Paused by the user; once resumed, it will {job.intent}.{leaving}"
    return StatusMessage("paused", "paused", text)


def _leaving(job: JobFacts) -> str:
    attempt = job.attempt
    if attempt is None or attempt.state is AttemptState.ENDED:
        return ""
    verb = humanize.pluralize(attempt.instance_count, "is", "are")
    return f" {job.its_machines.capitalize()} {verb} being deleted."


def _request(job: JobFacts) -> StatusMessage | None:
    """Return the message of a pending request of the user."""
    attempt = job.attempt
    live = attempt is not None and attempt.state not in ATTEMPT_WITH_OUTCOME
    if job.cancel_requested:
        text = "nothing runs any more"
        if attempt is not None and live:
            verb = humanize.pluralize(attempt.instance_count, "is", "are")
            text = f"{job.its_machines} {verb} stopped and deleted"
        return StatusMessage("cancelling", "cancelling", f"Cancel was asked for: {text}.")
    if job.over_budget and not job.pause_requested:
        why = humanize.as_sentence(job.over_budget)
        ends = f" A checkpoint is saved, and {job.its_machines} go." if live else ""
        return StatusMessage("pausing", "budget_exhausted", f"{why}{ends}")
    if job.pause_requested:
        text = "nothing is lost, as it does not train yet"
        if attempt is not None and live and attempt.generation:
            text = f"it saves a checkpoint and then lets {job.its_machines} go"
        elif job.has_trained:
            text = f"it does not train now; once resumed, it will {job.intent}"
        return StatusMessage("pausing", "pausing", f"Pause was asked for: {text}.")
    return None


def _life_cycle_status(job: JobFacts) -> StatusMessage:
    """Return the message of a job between its submission and its end."""
    if job.state is JobState.VALIDATING:
        text = humanize.as_sentence(job.reason)
        return StatusMessage("validating", "validating", text)
    if job.queue is not None:
        return _queued(job.queue)
    attempt = job.attempt
    if job.waits_for and (attempt is None or attempt.outcome is not None):
        why, again_at = job.waits_for, job.asks_again_at
        return StatusMessage("waiting_capacity", "no_capacity", why, job.since, again_at)
    if attempt is None:
        text = f"Validated; {job.next_offering} is about to be asked for."
        return StatusMessage("queued", "queued", text)
    if attempt.outcome is not None:
        return _between(job, attempt, attempt.outcome)
    match attempt.state:
        case AttemptState.PENDING | AttemptState.PROVISIONING:
            return _requested_status(job, attempt)
        case AttemptState.STARTING if not attempt.generation:
            return _booting(job, attempt)
        case _:
            return _generation(job, attempt)


def _queued(queue: QueueStanding) -> StatusMessage:
    if queue.position is None:
        text = "In the queue; it is about to be looked at."
        return StatusMessage("queued", str(queue.code), text, since=queue.since)
    phase = "waiting_capacity" if queue.is_for_cores else "queued"
    text = f"{humanize.ordinal(queue.position)} in the queue: {queue.why}."
    return StatusMessage(phase, str(queue.code), text, since=queue.since)


def _requested_status(job: JobFacts, attempt: AttemptFacts) -> StatusMessage:
    machines = f"{count_machines(attempt.instance_count)} of {attempt.offering}"
    nth = humanize.ordinal(attempt.refusals + 1)
    again = f" (asked for the {nth} time)" if attempt.refusals else ""
    if attempt.state is AttemptState.PENDING:
        phase = "recovering" if job.has_trained else "queued"
        verb = humanize.pluralize(attempt.instance_count, "is", "are")
        text = f"{machines} {verb} about to be asked for{again}, to {job.intent}."
        return StatusMessage(phase, "asking_for_machines", text)
    at = humanize.format_time(attempt.since)
    text = f"Azure was asked for {machines}{again}, to {job.intent}, at {at}."
    return StatusMessage("provisioning", "provisioning", text)


def _booting(job: JobFacts, attempt: AttemptFacts) -> StatusMessage:
    count = attempt.instance_count
    if attempt.joined < count:
        joined = humanize.pluralize(
            count, "it has not joined yet", f"{attempt.joined} of {count} have booted and joined"
        )
        text = f"Azure has given {count_machines(count)} in {attempt.region}; {joined}."
        return StatusMessage("booting", "booting", text)
    joined = humanize.pluralize(
        count, "The machine has joined; it is", f"All {count_machines(count)} have joined; they are"
    )
    return StatusMessage("booting", "joined", f"{joined} about to {job.intent}.")


def _generation(job: JobFacts, attempt: AttemptFacts) -> StatusMessage:
    """Return the message of machines with a generation: loading, training, saving, stopping."""
    machines = f"{_at_work(attempt)} of {attempt.offering}"
    if attempt.halt_kind is DirectiveKind.CHECKPOINT_AND_STOP:
        why = (
            f"Azure takes back {attempt.evicting} of {count_machines(attempt.instance_count)}"
            if attempt.evicting
            else humanize.as_sentence(attempt.halt_reason).rstrip(".")
        )
        code = "eviction_notice" if attempt.evicting else "stopping"
        return StatusMessage("saving", code, f"{why}; training saves a checkpoint and stops.")
    if attempt.halt_kind is DirectiveKind.STOP:
        why = humanize.as_sentence(attempt.halt_reason).rstrip(".")
        stops = humanize.pluralize(
            attempt.instance_count, "training is being stopped", "the others are being stopped"
        )
        return StatusMessage("recovering", "stopping", f"{why}; {stops}, to {job.intent}.")
    if attempt.state is AttemptState.STARTING or job.step <= attempt.from_step < job.total_steps:
        return _first_step(attempt, machines)
    if job.step >= job.total_steps:
        text = f"All {job.total_steps} steps are done; the final model is being saved."
        return StatusMessage("saving", "saving_model", text)
    return StatusMessage("training", "training", f"Training on {machines}.")


def _first_step(attempt: AttemptFacts, machines: str) -> StatusMessage:
    """Return the message until the first step of a generation is done."""
    load = f" and the checkpoint of step {attempt.from_step}" if attempt.from_step else ""
    count = attempt.members or attempt.instance_count
    since = (
        f", since {humanize.format_time(at)}"
        if (at := attempt.loaded_at or attempt.opened_at)
        else ""
    )
    if attempt.loaded_at is None:
        does = humanize.pluralize(count, "loads", "load")
        text = f"{machines} {does} model and data{load}{since}."
        return StatusMessage("loading", "loading", text)
    have = humanize.pluralize(count, "has", "have")
    text = f"{machines} {have} loaded model and data{load}; the first step is running{since}."
    return StatusMessage("loading", "first_step", text)


def _at_work(attempt: AttemptFacts) -> str:
    """Return the machines of the generation; an elastic job's may be a part of the attempt's."""
    few = 0 < attempt.members < attempt.instance_count
    return f"{attempt.members} of " * few + count_machines(attempt.instance_count)


def _between(job: JobFacts, attempt: AttemptFacts, outcome: Outcome) -> StatusMessage:
    """Return the message between two attempts."""
    match outcome:
        case Outcome.NO_CAPACITY | Outcome.PROVISIONING_FAILED:
            return _refused(job, attempt)
        case Outcome.EVICTED:
            return StatusMessage("recovering", "spot_evicted", _evicted(job, attempt))
        case Outcome.UNRESPONSIVE:
            return _unresponsive(job, attempt)
        case Outcome.SUCCEEDED:
            return StatusMessage("saving", "model_committed", "The final model is committed.")
        case Outcome.MISCONFIGURED:
            return StatusMessage("stopping", "misconfigured", humanize.as_sentence(attempt.reason))
        case Outcome.TRAINER_ERROR if job.state is JobState.RUNNING or attempt.reason != FRUITLESS:
            return StatusMessage("stopping", "trainer_error", humanize.as_sentence(attempt.reason))
        case Outcome.PAUSED if attempt.reason in _MIGRATES:
            code = _MIGRATES[attempt.reason]
            return StatusMessage("migrating", code, _next_request_text(attempt.reason, job))
        case Outcome.PAUSED | Outcome.CANCELLED | Outcome.OVER_BUDGET | Outcome.TRAINER_ERROR:
            return _resumes(job)


def _resumes(job: JobFacts) -> StatusMessage:
    """Return the message of a resumed job; without money `_ending` or `_request` applies."""
    paid = job.attempt is not None and job.attempt.outcome is Outcome.OVER_BUDGET
    text = _next_request_text("There is money again" if paid else "Resumed by the user", job)
    return StatusMessage("recovering" if job.has_trained else "queued", "resuming", text)


def _next_request_text(why: str, job: JobFacts) -> str:
    return f"{why}; machines to {job.intent} are about to be asked for."


def _refused(job: JobFacts, attempt: AttemptFacts) -> StatusMessage:
    many = "once" if attempt.refusals < 2 else f"{attempt.refusals} times in a row"
    machines = f"{count_machines(attempt.instance_count)} of {attempt.offering}"
    summary = f"Azure has no capacity for {machines} now (refused {many}"
    if attempt.outcome is Outcome.PROVISIONING_FAILED:
        summary = f"Azure failed to make {machines} ({many}"
    text = f"{summary}; {attempt.reason or 'no reason given'}). {_next(job, attempt)}"
    code = str(attempt.outcome)
    return StatusMessage("waiting_capacity", code, text, job.since, _next_at(attempt))


def _evicted(job: JobFacts, attempt: AttemptFacts) -> str:
    noticed, unnoticed = attempt.evicted_noticed, attempt.evicted_unnoticed
    if not (evicted := noticed + unnoticed):
        return f"{humanize.as_sentence(attempt.reason)} Looking for machines to {job.intent}."
    how = "with notice" if not unnoticed else "without notice"
    if noticed and unnoticed:
        how = f"({noticed} with notice, {unnoticed} without)"
    machines = count_machines(attempt.instance_count)
    verb = "was" if evicted == 1 else "were"
    summary = f"{evicted} of {machines} {verb} evicted in {attempt.region} {how}"
    return f"{summary}; looking for machines to {job.intent}."


def _unresponsive(job: JobFacts, attempt: AttemptFacts) -> StatusMessage:
    reason = humanize.as_sentence(attempt.reason).rstrip(".")
    verb = humanize.pluralize(attempt.instance_count, "is", "are")
    summary = f"{reason} in {attempt.region}, so {job.its_machines} {verb} given up."
    text = f"{summary} {_next(job, attempt)}"
    since = attempt.since if job.state is JobState.RUNNING else job.since
    return StatusMessage("recovering", "unresponsive", text, since, _next_at(attempt))


def _next(job: JobFacts, attempt: AttemptFacts) -> str:
    offering = job.next_offering or attempt.offering
    if _next_at(attempt) <= attempt.since:
        return f"{offering} is asked for next, to {job.intent}."
    at = humanize.format_time(_next_at(attempt))
    return f"{offering} is asked for at {at}, to {job.intent}."


def _next_at(attempt: AttemptFacts) -> datetime:
    return attempt.since + backoff_before_next(attempt.outcome, attempt.refusals, attempt.duds)


def why_ended(outcome: Outcome | None, reason: str) -> str:
    """Return why an attempt ended, as a sentence; empty while it runs."""
    if outcome is None:
        return ""
    if outcome is Outcome.NO_CAPACITY:
        return f"Azure had no room: {humanize.as_sentence(reason)}"
    return humanize.as_sentence(reason)
