"""Slot: runs one job after another and kills each in the planned phases."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from bench.recovery import invariants, phases, victims
from bench.recovery.book import Book, JobOutcome, Strike
from bench.recovery.jobs import RecoveryJobs, Spec
from bench.recovery.observed import blobs, disk
from bench.recovery.observed.blobs import Containers
from bench.recovery.observed.cluster import ClusterView, Vm
from bench.recovery.observed.watch import Watch
from bench.recovery.phases import JobSituation
from bench.recovery.plan import MACHINE, RESTART, Kill, KillKind, Phase
from bench.recovery.stage import Stage

STUCK_SECONDS = 240.0  # timeout for a job to reach the next phase
JOB_SECONDS = 600.0  # timeout for a whole job
ENDINGS = ("restart", "fail", "cancel")  # how an Azure ML job goes on after a preemption
POLL_SECONDS = 0.05
SAVE_POLL_SECONDS = 0.002
# Usual length of a phase in seconds; a kill hits a random moment within it.
LENGTHS = {
    Phase.CREATE: 2.0,
    Phase.BOOT: 0.8,
    Phase.LOAD: 5.0,
    Phase.STEP: 1.0,
    Phase.SAVE: 0.015,
    Phase.COMMIT: 0.6,
    Phase.DELETE: 1.5,
}


class Stuck(Exception):
    """Raised when a job does not reach the expected phase in time."""


@dataclass(frozen=True, kw_only=True)
class RecoveryTools:
    """Connections and records that all slots share."""

    view: ClusterView
    watch: Watch
    jobs: RecoveryJobs
    containers: Containers
    stage: Stage
    book: Book
    print_line: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class KillTarget:
    """The machine or process to kill, and the job's situation."""

    situation: JobSituation
    vm: Vm | None
    process: psutil.Process | None


@dataclass
class Slot:
    """One of several concurrent sequences of jobs."""

    number: int
    spec: Spec
    twin: JobOutcome
    tools: RecoveryTools
    job: str = ""
    _submitted: int = 0
    _last_strike: Strike | None = None
    _state: str = ""
    _newest_path: str = ""  # newest checkpoint in HEAD at the last kill
    _victim: tuple[tuple[object, ...], psutil.Process | None] = ((), None)
    _searched_at: float = 0.0
    _save_path: str = ""

    async def run(self, kills: list[Kill]) -> None:
        """Carry out all kills, and then wait for the end of the last job."""
        for kill in kills:
            while True:
                try:
                    await self._strike(kill)
                    break
                except Stuck as stuck:
                    await self._abandon_job(str(stuck))
        if self.job:
            await self.tools.jobs.ended(self.job, JOB_SECONDS)
            await self._close_job()

    async def _strike(self, kill: Kill) -> None:
        if kill.after_commit:
            await self._wait_for_checkpoint()
        target, at = await self._wait_for_target(kill), time.time()
        while not await self._kill_target(kill, target):
            target, at = await self._wait_for_target(kill), time.time()
        phase = target.situation.phase or kill.phase
        phase = kill.phase if kill.phase is Phase.DELETE and target.situation.deleting else phase
        head = await asyncio.to_thread(blobs.head, self.tools.containers.of(self.job))
        phase = self._commit_pending(head, at) if phase is Phase.STEP else phase
        newest, periodic = blobs.newest(head), blobs.newest(head, "periodic")
        self._newest_path = newest["path"] if newest else ""
        attempt = target.situation.attempt
        self._last_strike = Strike(
            kill=kill,
            phase=phase,
            slot=self.number,
            job=self.job,
            attempt=attempt.id if attempt else "",
            generation=self._generation(),
            at=at,
            step=target.situation.step,
            periodic_step=periodic["step"] if periodic else 0,
            in_azureml=target.vm is not None and target.vm.in_azureml,
        )
        self.tools.book.strikes.append(self._last_strike)
        if kill.kind is KillKind.SERVICE:
            self._last_strike.back_at = await self.tools.stage.wait_for_service()

    async def _kill_target(self, kill: Kill, target: KillTarget) -> bool:
        """Kill the target; return False when it was already gone."""
        if target.process is None:
            assert target.vm is not None, "a kill of a machine has one"
            if kill.kind is KillKind.EVICT and target.vm.in_azureml:
                assert target.situation.attempt is not None, "a machine is an attempt's"
                then = ENDINGS[int(kill.delay * len(ENDINGS))]
                return await self.tools.view.preempt(target.situation.attempt.id, then)
            return await self.tools.view.evict(target.vm, notice=kill.kind is KillKind.EVICT)
        if not victims.alive(target.process):
            return False
        if kill.kind is KillKind.SERVICE:
            self.tools.stage.mark_service_down()
        target.process.kill()
        return True

    async def _wait_for_target(self, kill: Kill) -> KillTarget:
        """Wait for the phase and for a moment within it, and return the target.

        Raises:
            Stuck: The phase did not come within STUCK_SECONDS.
        """
        latest = time.monotonic() + STUCK_SECONDS
        while time.monotonic() < latest:
            now = await self._situation(kill)
            if now is not None and self._is_due(kill, now):
                if kill.phase in (Phase.SAVE, Phase.COMMIT) and now.phase is Phase.STEP:
                    await self._await_save(kill, now)
                else:
                    await asyncio.sleep(kill.delay * LENGTHS[kill.phase])
                target = await self._target(kill)
                if target is not None:
                    return target
            await asyncio.sleep(POLL_SECONDS)
        raise Stuck(f"{self.job} did not come to {kill.phase} within {STUCK_SECONDS:.0f} s")

    def _is_due(self, kill: Kill, now: JobSituation) -> bool:
        """Return whether the phase is reached, or cannot be reached any more."""
        if kill.phase is Phase.DELETE:
            passed = now.phase in (Phase.LOAD, Phase.STEP) and self._is_target_replaced(now)
            return now.deleting or passed
        if not self._is_target_replaced(now):
            return False
        if kill.phase in (Phase.SAVE, Phase.COMMIT):
            return now.phase in (Phase.STEP, Phase.SAVE, Phase.COMMIT)
        return now.phase is kill.phase or now.is_past(kill.phase)

    def _is_target_replaced(self, now: JobSituation) -> bool:
        """Return whether the target of the last kill is replaced, so that this is the new one."""
        last = self._last_strike
        if last is None or last.job != self.job or now.attempt is None:
            return True
        if now.attempt.id != last.attempt:
            return True
        if last.kind in MACHINE:
            return False
        ended_generation = last.kind in RESTART and last.phase not in (
            Phase.CREATE,
            Phase.BOOT,
            Phase.DELETE,
        )
        return not ended_generation or now.generation > last.generation

    async def _await_save(self, kill: Kill, now: JobSituation) -> None:
        """Poll the outboxes every few milliseconds for a save, for up to 0.25 s."""
        folders = [run.folder for run in now.runs if run is not None]
        latest = time.monotonic() + 0.25
        while time.monotonic() < latest:
            saves = [save for folder in folders for save in disk.saves(folder)]
            matching = [save for save in saves if save.complete is (kill.phase is Phase.COMMIT)]
            if matching:
                self._save_path = matching[-1].path
                await asyncio.sleep(kill.delay * LENGTHS[kill.phase])
                return
            await asyncio.sleep(SAVE_POLL_SECONDS)

    async def _target(self, kill: Kill) -> KillTarget | None:
        """Return the target, or None when it does not exist or the phase is wrong."""
        tools = self.tools
        if kill.kind is KillKind.SERVICE:
            process = tools.stage.service()
            if process is None:
                return None
            return self._confirm_target(
                kill, KillTarget(situation=self._now(), vm=None, process=process)
            )
        now = self._now()
        vm = now.vms[int(kill.pick * len(now.vms))] if now.vms else None
        if vm is None:
            return None
        process = (
            None if kill.kind in MACHINE else self._victim_process(vm, kill.kind, now.generation)
        )
        if kill.kind not in MACHINE and process is None:
            return None
        return self._confirm_target(kill, KillTarget(situation=self._now(), vm=vm, process=process))

    def _confirm_target(self, kill: Kill, target: KillTarget) -> KillTarget | None:
        """Return the target if the phase is still right, or None to wait for the next chance.

        Saves are short, so a kill may miss one or hit one by accident.
        """
        now = target.situation
        if kill.phase is Phase.STEP and now.phase in (Phase.SAVE, Phase.COMMIT):
            return None
        if now.has_ended and not (kill.phase is Phase.DELETE and now.deleting):
            return None
        if kill.phase is Phase.SAVE and now.phase is Phase.STEP:
            return None
        if kill.phase is Phase.COMMIT and now.phase is Phase.STEP and not self._save_path:
            return None
        return target

    def _victim_process(self, vm: Vm, kind: KillKind, generation: int) -> psutil.Process | None:
        """Return the process, cached while it lives; search at most every 0.3 s."""
        key = (vm.vm_id, kind, generation)
        cached = self._victim[1] if self._victim[0] == key else None
        if cached is not None and victims.alive(cached):
            return cached
        if time.monotonic() - self._searched_at < 0.3 and self._victim[0] == key:
            return None
        self._victim, self._searched_at = (key, victims.on_machine(vm, kind)), time.monotonic()
        return self._victim[1]

    async def _situation(self, kill: Kill) -> JobSituation | None:
        """Return the job's situation; close an ended job and submit the next one.

        It also finds the target process in advance, because the search is slow.
        """
        now = self._now()
        if self.job and now.has_ended:
            ended = now.attempt is None or now.attempt.state == "ended"
            if kill.phase is Phase.DELETE and not ended:
                return now
            await self._close_job()
        if not self.job:
            await self._submit_job()
            return None
        if now.vms and kill.kind in RESTART:
            self._victim_process(now.vms[int(kill.pick * len(now.vms))], kill.kind, now.generation)
        return now

    def _now(self) -> JobSituation:
        snapshot = self.tools.watch.snapshot
        return phases.situation(snapshot, self.job, self.tools.stage.states.get(self.job, ""))

    def _generation(self) -> int:
        """Return the newest generation of the job that the watch has seen."""
        numbers = [n for job, n in self.tools.book.generations if job == self.job]
        return max([*numbers, self._now().generation], default=0)

    def _commit_pending(self, head: dict[str, object] | None, at: float) -> Phase:
        """Return the phase of a kill after the seen save left the disk.

        It is COMMIT, or STEP when no save was seen or the save was committed before the kill.
        """
        save_path, self._save_path = self._save_path, ""
        if not save_path:
            return Phase.STEP
        entry = next((e for e in blobs.named_entries(head) if e["path"] == save_path), None)
        return Phase.STEP if entry and entry["committed_at"] < at else Phase.COMMIT

    async def _wait_for_checkpoint(self) -> None:
        """Wait until HEAD names a newer checkpoint than at the last kill."""
        latest = time.monotonic() + STUCK_SECONDS
        while self.job and not self._now().has_ended:
            head = await asyncio.to_thread(blobs.head, self.tools.containers.of(self.job))
            newest = blobs.newest(head)
            if newest is not None and newest["path"] != self._newest_path:
                return
            if time.monotonic() > latest:
                raise Stuck(f"{self.job} committed nothing within {STUCK_SECONDS:.0f} s")
            await asyncio.sleep(0.2)

    async def _submit_job(self) -> None:
        self._submitted += 1
        name = f"bench-{self.number}-{self._submitted}"
        self.job = await self.tools.jobs.submit(self.spec, name)
        self.tools.watch.jobs.add(self.job)
        self._newest_path = ""

    async def _close_job(self) -> None:
        """Compare an ended job with its twin, and verify its checkpoints in Blob."""
        job, self.job = self.job, ""
        book = self.tools.book
        outcome = await self.tools.jobs.outcome(job)
        book.outcomes.append(outcome)
        book.unfinished += invariants.unfinished([outcome])
        if outcome.state == "succeeded":
            book.mismatches += invariants.mismatches(outcome, self.twin)
        await self.tools.watch.verify(job)
        verdict = "the same as its twin" if outcome.parameters_sha256 else outcome.error
        self.tools.print_line(f"  {job} {outcome.state}: {verdict[:200]}")

    async def _abandon_job(self, why: str) -> None:
        self.tools.book.unfinished.append(why)
        self.tools.print_line(f"  GIVEN UP: {why}")
        job, self.job = self.job, ""
        await self.tools.jobs.cancel(job)
