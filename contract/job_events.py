"""Codes of job events with their level and meaning; `docs/events.md` is generated from them."""

from typing import Final, Literal, NamedTuple

Level = Literal["info", "warn", "error"]


class JobEvent(NamedTuple):
    """The levels that an event may have, the usual one first, and what it means."""

    levels: tuple[Level, ...]
    meaning: str


def _info(meaning: str) -> JobEvent:
    return JobEvent(("info",), meaning)


def _warn(meaning: str) -> JobEvent:
    return JobEvent(("warn",), meaning)


def _error(meaning: str) -> JobEvent:
    return JobEvent(("error",), meaning)


JOB_EVENTS: Final[dict[str, JobEvent]] = {
    "job.created": _info("The job was created."),
    "job.queued": _info("The files are checked; the job waits for machines."),
    "job.running": _info("The job trains."),
    "job.recovering": _info("The job lost its machines and looks for new ones."),
    "job.paused": _info("The job holds no machines until it is resumed."),
    "job.succeeded": _info("The model is ready."),
    "job.failed": _error("The job failed; `error` of the job has the reason."),
    "job.cancelled": _info("The job was cancelled."),
    "job.admitted": _info("The job left the queue and may request machines."),
    "job.waits": _info("The job waits in the queue; the message says for what."),
    "job.placed": _info("Size, region and capacity type were chosen for the next attempt."),
    "job.changed": _info("A user changed budget, deadline or other terms."),
    "job.cancel_requested": _info("A user cancelled the job."),
    "job.pause_requested": _info("A user paused the job."),
    "job.resume_requested": _info("A user resumed the job."),
    "job.back_to_spot": _info("Spot capacity is back: the job leaves on-demand."),
    "job.deadline_at_risk": _warn("Spot could miss the deadline; the message says what follows."),
    "job.deadline_passed": _warn("The deadline passed before the job was done."),
    "job.budget_threshold": JobEvent(("info", "warn"), "50, 75 or 90 % of the budget are spent."),
    "job.budget_exhausted": _warn("The budget is exhausted: the job saves and stops."),
    "job.budget_passed": _error(
        "Machines outlasted the reserve, so more than the budget is spent."
    ),
    "plan.counted": _info("Every row is tokenized; the plan now rests on exact counts."),
    "attempt.provisioning": _info("Machines were requested from Azure."),
    "attempt.starting": _info("Machines run; nodes boot, register and load."),
    "attempt.running": _info("The first training step of the attempt is done."),
    "attempt.terminating": JobEvent(
        ("info", "warn"), "The attempt is over, with an outcome; its machines are being deleted."
    ),
    "attempt.ended": _info("The machines are gone and the attempt's cost is final."),
    "attempt.needs_help": _error("An operator must act; the message says what to do."),
    "attempt.help_over": _info("What needed an operator is corrected."),
    "attempt.will_not_die": _error("Machines could not be deleted for 15 minutes and cost money."),
    "attempt.made_late": _warn("Azure created machines after the attempt; they are being deleted."),
    "attempt.serial_log": _info("Serial logs of machines that never joined were kept."),
    "leak.will_not_die": _error("A scale set of an old attempt cannot be deleted."),
    "node.booting": _info("The first machine reached another step of its boot."),
    "node.boot_failed": _warn("A step of a machine's boot failed; the message names it."),
    "node.registered": _info("A machine registered."),
    "node.eviction_notice": _warn("Azure will take a machine; all machines save and stop."),
    "node.evicted": _warn("Machines of an elastic job were taken; the others continue."),
    "node.unhealthy": _warn("A GPU or link is broken; the machine is replaced."),
    "node.useless": _warn("A replacement did not join in time and is deleted."),
    "node.replacement_asked": _info("Machines were requested in place of lost or late ones."),
    "node.no_replacement": _warn("Azure has no replacement now; requests are repeated."),
    "generation.opened": JobEvent(
        ("info", "warn"), "Training starts on these nodes, from this checkpoint."
    ),
    "generation.loaded": _info("The model is loaded and the first step is running."),
    "generation.halted": JobEvent(("warn", "info"), "The nodes must stop; the message says why."),
    "eviction.answered": _info("What a node saved after an eviction notice, with times."),
    "training.warned": _warn("The trainer's warning, once for each job."),
    "checkpoint.committed": _info("A checkpoint is in `HEAD`: training resumes from it."),
    "checkpoint.delayed": _warn("A checkpoint cannot be uploaded or stored at the moment."),
    "checkpoint.caught_up": _info("Checkpoints are uploaded again."),
    "checkpoint.broken": _error("A checkpoint could not be loaded; the job uses the one before."),
    "checkpoint.deleted": _info("A user deleted a checkpoint."),
    "database.behind": _warn("A restored database knew less than `HEAD`; the job continues."),
    "model.deleted": _info("A user deleted the model."),
    "model.registered": _info("The model is registered in the Azure ML workspace."),
    "model.not_registered": _warn("The model could not be registered for a day."),
    "storage.tier_asked": _info("A move to another storage tier was requested."),
    "storage.tier_changed": _info("The files are in the new tier."),
    "storage.tier_delayed": _warn("A move to another tier fails and is repeated."),
    "storage.tier_gone": _warn("The files were deleted before their move was done."),
    "storage.rehydrated": _info("The files are back from the archive."),
    "tracker.started": _info("An experiment tracker receives metrics; the message has its link."),
    "tracker.given_up": _warn("A tracker refused metrics for a day and receives none any more."),
    "file.validation_is_training": _warn("The validation file has the bytes of the training file."),
}
"""Every code but `file.CODE`, a warning about rows; its codes are those of the data check."""
