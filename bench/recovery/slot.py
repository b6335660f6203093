"""One job after the other, each killed again and again as the plan says, at the phase it says."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from bench.recovery import blobs, disk, invariants, phases, victims
from bench.recovery.blobs import Containers
from bench.recovery.book import Book, Outcome, Strike
from bench.recovery.jobs import Jobs, Spec
from bench.recovery.phases import Situation
from bench.recovery.plan import MACHINE, RESTART, Kill, Kind, Phase
from bench.recovery.sight import Eyes, Vm
from bench.recovery.stage import Stage
from bench.recovery.watch import Watch

STUCK_SECONDS = 240.0  # for a job to come from one phase to the next
WHOLE_SECONDS = 600.0  # for a job from its begin to its end
ENDINGS = ("restart", "fail", "cancel")  # of a job in Azure ML that a node was taken of
PACE_SECONDS = 0.05
SAVE_PACE_SECONDS = 0.002
# How long a phase usually is, in seconds: the strike falls anywhere within.
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
    """A job does not come to where it should."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What every slot works with."""

    eyes: Eyes
    watch: Watch
    jobs: Jobs
    containers: Containers
    stage: Stage
    book: Book
    say: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is about to be struck."""

    situation: Situation
    vm: Vm | None
    process: psutil.Process | None


@dataclass
class Slot:
    """One of several at the same time."""

    number: int
    spec: Spec
    twin: Outcome
    tools: Tools
    job: str = ""
    _submitted: int = 0
    _last: Strike | None = None
    _state: str = ""
    _newest_path: str = ""  # that HEAD named at the last strike
    _victim: tuple[tuple[object, ...], psutil.Process | None] = ((), None)
    _victim_at: float = 0.0
    _save_seen: str = ""

    async def run(self, kills: list[Kill]) -> None:
        """Strike all of them; then let the last job end in peace."""
        for kill in kills:
            while True:
                try:
                    await self._strike(kill)
                    break
                except Stuck as stuck:
                    await self._give_up(str(stuck))
        if self.job:
            await self.tools.jobs.ended(self.job, WHOLE_SECONDS)
            await self._close()

    async def _strike(self, kill: Kill) -> None:
        if kill.after_commit:
            await self._newer_checkpoint()
        target, at = await self._awaited(kill), time.time()
        while not await self._do(kill, target):
            target, at = await self._awaited(kill), time.time()
        phase = target.situation.phase or kill.phase
        phase = kill.phase if kill.phase is Phase.DELETE and target.situation.deleting else phase
        head = await asyncio.to_thread(blobs.head, self.tools.containers.of(self.job))
        phase = self._commit_pending(head, at) if phase is Phase.STEP else phase
        newest, periodic = blobs.newest(head), blobs.newest(head, "periodic")
        self._newest_path = newest["path"] if newest else ""
        attempt = target.situation.attempt
        self._last = Strike(
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
        self.tools.book.strikes.append(self._last)
        if kill.kind is Kind.SERVICE:
            self._last.back_at = await self.tools.stage.service_back()

    async def _do(self, kill: Kill, target: Target) -> bool:
        """Strike; False when the victim was gone a moment before."""
        if target.process is None:
            assert target.vm is not None, "a kill of a machine has one"
            if kill.kind is Kind.EVICT and target.vm.in_azureml:
                assert target.situation.attempt is not None, "a machine is an attempt's"
                then = ENDINGS[int(kill.delay * len(ENDINGS))]
                return await self.tools.eyes.preempt(target.situation.attempt.id, then)
            return await self.tools.eyes.evict(target.vm, notice=kill.kind is Kind.EVICT)
        if not victims.alive(target.process):
            return False
        if kill.kind is Kind.SERVICE:
            self.tools.stage.service_goes()
        target.process.kill()
        return True

    async def _awaited(self, kill: Kill) -> Target:
        """Wait for the phase, then for a moment within it; what is struck is there."""
        latest = time.monotonic() + STUCK_SECONDS
        while time.monotonic() < latest:
            now = await self._situation(kill)
            if now is not None and self._due(kill, now):
                if kill.phase in (Phase.SAVE, Phase.COMMIT) and now.phase is Phase.STEP:
                    await self._await_save(kill, now)
                else:
                    await asyncio.sleep(kill.delay * LENGTHS[kill.phase])
                target = await self._target(kill)
                if target is not None:
                    return target
            await asyncio.sleep(PACE_SECONDS)
        raise Stuck(f"{self.job} did not come to {kill.phase} within {STUCK_SECONDS:.0f} s")

    def _due(self, kill: Kill, now: Situation) -> bool:
        """Whether the phase is here, or has gone by and will not come back."""
        if kill.phase is Phase.DELETE:
            passed = now.phase in (Phase.LOAD, Phase.STEP) and self._moved_on(now)
            return now.deleting or passed
        if not self._moved_on(now):
            return False
        if kill.phase in (Phase.SAVE, Phase.COMMIT):
            return now.phase in (Phase.STEP, Phase.SAVE, Phase.COMMIT)
        return now.phase is kill.phase or now.beyond(kill.phase)

    def _moved_on(self, now: Situation) -> bool:
        """Whether what the last strike hit has been replaced; else it is only dying."""
        last = self._last
        if last is None or last.job != self.job or now.attempt is None:
            return True
        if now.attempt.id != last.attempt:
            return True
        if last.kind in MACHINE:
            return False
        struck = last.kind in RESTART and last.phase not in (Phase.CREATE, Phase.BOOT, Phase.DELETE)
        return not struck or now.generation > last.generation

    async def _await_save(self, kill: Kill, now: Situation) -> None:
        """Look into the outboxes every few milliseconds, for a while."""
        folders = [run.folder for run in now.runs if run is not None]
        latest = time.monotonic() + 0.25
        while time.monotonic() < latest:
            found = [save for folder in folders for save in disk.saves(folder)]
            wanted = [save for save in found if save.whole is (kill.phase is Phase.COMMIT)]
            if wanted:
                self._save_seen = wanted[-1].path
                await asyncio.sleep(kill.delay * LENGTHS[kill.phase])
                return
            await asyncio.sleep(SAVE_PACE_SECONDS)

    async def _target(self, kill: Kill) -> Target | None:
        """The victim, if it is there and the moment is right."""
        tools = self.tools
        if kill.kind is Kind.SERVICE:
            process = tools.stage.service()
            if process is None:
                return None
            return self._right(kill, Target(situation=self._now(), vm=None, process=process))
        now = self._now()
        vm = now.vms[int(kill.pick * len(now.vms))] if now.vms else None
        if vm is None:
            return None
        process = None if kill.kind in MACHINE else self._found(vm, kill.kind, now.generation)
        if kill.kind not in MACHINE and process is None:
            return None
        return self._right(kill, Target(situation=self._now(), vm=vm, process=process))

    def _right(self, kill: Kill, target: Target) -> Target | None:
        """Saves are quick: what missed one, or came upon one, waits for the next moment."""
        now = target.situation
        if kill.phase is Phase.STEP and now.phase in (Phase.SAVE, Phase.COMMIT):
            return None
        if now.over and not (kill.phase is Phase.DELETE and now.deleting):
            return None
        if kill.phase is Phase.SAVE and now.phase is Phase.STEP:
            return None
        if kill.phase is Phase.COMMIT and now.phase is Phase.STEP and not self._save_seen:
            return None
        return target

    def _found(self, vm: Vm, kind: Kind, generation: int) -> psutil.Process | None:
        """The process, from memory as long as it lives; looked for twice a second at most."""
        key = (vm.vm_id, kind, generation)
        known = self._victim[1] if self._victim[0] == key else None
        if known is not None and victims.alive(known):
            return known
        if time.monotonic() - self._victim_at < 0.3 and self._victim[0] == key:
            return None
        self._victim, self._victim_at = (key, victims.on_machine(vm, kind)), time.monotonic()
        return self._victim[1]

    async def _situation(self, kill: Kill) -> Situation | None:
        """The job as it is, after its end a new one; and the victim known in time."""
        now = self._now()
        if self.job and now.over:
            ended = now.attempt is None or now.attempt.state == "ended"
            if kill.phase is Phase.DELETE and not ended:
                return now
            await self._close()
        if not self.job:
            await self._begin()
            return None
        if now.vms and kill.kind in RESTART:
            self._found(now.vms[int(kill.pick * len(now.vms))], kill.kind, now.generation)
        return now

    def _now(self) -> Situation:
        sight = self.tools.watch.sight
        return phases.situation(sight, self.job, self.tools.stage.states.get(self.job, ""))

    def _generation(self) -> int:
        """The newest that the watch has seen of the job."""
        known = [n for job, n in self.tools.book.generations if job == self.job]
        return max([*known, self._now().generation], default=0)

    def _commit_pending(self, head: dict[str, object] | None, at: float) -> Phase:
        """The save that was seen had left the disk: was it committed when we struck?"""
        seen, self._save_seen = self._save_seen, ""
        if not seen:
            return Phase.STEP
        entry = next((e for e in blobs.named(head) if e["path"] == seen), None)
        return Phase.STEP if entry and entry["committed_at"] < at else Phase.COMMIT

    async def _newer_checkpoint(self) -> None:
        """Wait until HEAD names something newer than at the last strike."""
        latest = time.monotonic() + STUCK_SECONDS
        while self.job and not self._now().over:
            head = await asyncio.to_thread(blobs.head, self.tools.containers.of(self.job))
            newest = blobs.newest(head)
            if newest is not None and newest["path"] != self._newest_path:
                return
            if time.monotonic() > latest:
                raise Stuck(f"{self.job} committed nothing within {STUCK_SECONDS:.0f} s")
            await asyncio.sleep(0.2)

    async def _begin(self) -> None:
        self._submitted += 1
        name = f"bench-{self.number}-{self._submitted}"
        self.job = await self.tools.jobs.submit(self.spec, name)
        self.tools.watch.jobs.add(self.job)
        self._newest_path = ""

    async def _close(self) -> None:
        """Hold an ended job against its twin, and check what it left in Blob."""
        job, self.job = self.job, ""
        book = self.tools.book
        outcome = await self.tools.jobs.outcome(job)
        book.outcomes.append(outcome)
        book.unfinished += invariants.unfinished([outcome])
        if outcome.state == "succeeded":
            book.mismatches += invariants.mismatches(outcome, self.twin)
        await self.tools.watch.verify(job)
        said = "the same as its twin" if outcome.parameters_sha256 else outcome.error
        self.tools.say(f"  {job} {outcome.state}: {said[:200]}")

    async def _give_up(self, why: str) -> None:
        self.tools.book.unfinished.append(why)
        self.tools.say(f"  GIVEN UP: {why}")
        job, self.job = self.job, ""
        await self.tools.jobs.cancel(job)
