"""Phase of a job, from the cloud's lists and the disks of its machines."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.recovery.observed import disk
from bench.recovery.observed.cluster import Snapshot, SnapshotAttempt, SnapshotScaleSet, Vm
from bench.recovery.plan import WALK, Phase

ENDED_STATES = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, kw_only=True)
class JobSituation:
    """Current state of one job and its machines."""

    state: str  # state of the job
    attempt: SnapshotAttempt | None
    vms: Sequence[Vm]  # running machines
    runs: Sequence[disk.Run | None]  # newest run on each machine
    phase: Phase | None  # None: between two phases, or over
    deleting: bool  # whether a scale set of the job is being deleted

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self.state in ENDED_STATES

    @property
    def generation(self) -> int:
        """Number of the newest generation on its machines; 0 for none."""
        return max((run.number for run in self.runs if run), default=0)

    @property
    def step(self) -> int:
        """Last loaded or finished training step."""
        own = [r.progress or 0 for r in self.runs if r and r.number == self.generation]
        return max(own, default=0)

    def is_past(self, phase: Phase) -> bool:
        """Return whether the phase is over and does not come back without another kill."""
        if self.phase is None or phase is Phase.DELETE:
            return False
        return phase in WALK[:3] and WALK.index(self.phase) > WALK.index(phase)


def situation(snapshot: Snapshot, job: str, state: str) -> JobSituation:
    """Read the disks of the job's machines and return the job's situation."""
    attempt = snapshot.newest(job)
    machines = snapshot.machines(attempt.id) if attempt else []
    vms = [v for v in machines if v.state == "running"]
    runs = [disk.newest_run(v.work) for v in vms]
    deleting = any(s.job == job and not _is_held(snapshot, s) for s in snapshot.sets)
    phase = None if state in ENDED_STATES else phase_of(attempt, runs)
    return JobSituation(
        state=state, attempt=attempt, vms=vms, runs=runs, phase=phase, deleting=deleting
    )


def _is_held(snapshot: Snapshot, scale_set: SnapshotScaleSet) -> bool:
    attempt = snapshot.attempts.get(scale_set.attempt)
    return scale_set.state != "Deleting" and (attempt is None or attempt.has_machines)


def phase_of(attempt: SnapshotAttempt | None, runs: Sequence[disk.Run | None]) -> Phase | None:
    """Return the phase of an attempt, from the newest runs on its running machines."""
    if attempt is None or not attempt.has_machines:
        return None
    if attempt.state in ("pending", "provisioning"):
        return Phase.CREATE
    if not runs:
        return None  # all machines are gone; the service will notice soon
    newest = max((run.number for run in runs if run), default=0)
    if newest == 0:
        return Phase.BOOT
    own = [run for run in runs if run and run.number == newest]
    if not any(run.first_step_at for run in own):
        return Phase.LOAD
    saves = [save for run in own for save in run.saves]
    if any(not save.complete for save in saves):
        return Phase.SAVE
    return Phase.COMMIT if saves else Phase.STEP
