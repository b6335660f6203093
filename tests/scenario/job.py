"""A job of a scenario: what its user asks, what is seen of it, and its machines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import httpx

from service.db.attempts import attempts as attempt_rows
from service.db.attempts.attempts import AttemptRow
from service.db.jobs import jobs as job_rows
from service.db.money import ledger
from service.domain.cloud.fleet import scale_set_name
from service.domain.states import JOB_TERMINAL, AttemptState, JobState
from tests.scenario import promises
from tests.scenario.machines.job_container import WiredContainer
from tests.scenario.machines.machine import Machine
from tests.world import DATASET, MODEL
from trainer.contract import HEAD, Head, NodePhase

if TYPE_CHECKING:
    from tests.scenario.scenario import Scenario

LAST_STEP = 6
NODES = 2


@dataclass(eq=False)
class ScenarioJob:
    """One job and its machines. ``done``: what has happened so far, in the play's own words."""

    scenario: Scenario
    born: datetime
    machines: dict[str, Machine] = field(default_factory=dict)
    attempts: list[AttemptRow] = field(default_factory=list)
    state: JobState = JobState.VALIDATING
    file_id: str = ""
    job_id: str = ""
    done: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)  # how often
    wished: set[str] = field(default_factory=set)  # asked for, perhaps not acknowledged yet
    broken: list[str] = field(default_factory=list)  # promises, with what shows it
    waited: int = 0  # rounds, for what may never come
    heard: dict[str, tuple[int, int]] = field(default_factory=dict)  # by node: epoch, heartbeat

    # --- what its user does ---

    async def submit(self) -> None:
        """Upload and submit until both are acknowledged; the key makes it one job."""
        if not self.file_id:
            form = {"files": {"file": ("train.jsonl", DATASET)}, "data": {"purpose": "fine-tune"}}
            answer = await self.send_request("POST", "/v1/files", **form)
            if answer is None:
                return
            self.file_id = answer.json()["id"]
        body: dict[str, Any] = {
            "model": MODEL,
            "training_file": self.file_id,
            "infrastructure": {"nodes": NODES},
        } | self.scenario.play.request(self)
        key = {"idempotency-key": f"life-{self.file_id}"}
        answer = await self.send_request("POST", "/v1/fine_tuning/jobs", headers=key, json=body)
        if answer is not None:
            assert answer.status_code == 200, answer.text
            self.job_id = answer.json()["id"]

    async def request_command(self, action: str) -> None:
        """Ask for a cancel, pause or resume now, and in each round until it is acknowledged."""
        self.wished.add(action)
        self.asked[action] += 1
        answer = await self.send_request("POST", f"/v1/fine_tuning/jobs/{self.job_id}/{action}")
        if answer is not None and answer.status_code == 200:
            self.done.add(action)

    async def send_request(self, method: str, url: str, **options: Any) -> httpx.Response | None:  # noqa: ANN401
        """Send a request of the user; None when no useful answer came."""
        key = {"authorization": f"Bearer {self.scenario.world.key}"}
        headers = key | options.pop("headers", {})
        return await self.scenario.replicas.send_request(method, url, headers=headers, **options)

    # --- what happens to its machines ---

    def train(self, step: int) -> None:
        """Let machines train up to this step, and no further for now."""
        for machine in self.machines.values():
            machine.hold = step

    def finish(self) -> None:
        """Let the newest attempt's machines train to the end."""
        for machine in self.own_machines():
            machine.hold = machine.last = LAST_STEP

    def evict(self) -> None:
        """Let Azure take the last machine of the newest attempt, unannounced."""
        name = scale_set_name(self.attempts[-1].id)
        (scale_set,) = [s for s in self.scenario.cloud.list_existing(()) if s.name == name]
        self.scenario.cloud.evict(name, scale_set.instances[-1].instance_id)

    # --- what is seen of it ---

    def own_machines(self) -> list[Machine]:
        """Return the machines of the newest attempt that are there."""
        newest = self.attempts[-1].id if self.attempts else ""
        return [m for m in self.machines.values() if m.attempt_id == newest]

    def is_training(self, step: int) -> bool:
        """Return whether all machines have done this step, and the service knows they train."""
        machines = self.own_machines()
        runs = bool(self.attempts) and self.attempts[-1].state is AttemptState.RUNNING
        busy = all(m.phase is NodePhase.RUNNING and m.step >= step for m in machines)
        return runs and len(machines) == NODES and busy

    def have_all_ended(self) -> bool:
        """Return whether no attempt costs anything any more."""
        return all(a.state is AttemptState.ENDED for a in self.attempts)

    @property
    def is_over(self) -> bool:
        """Return whether nothing more is to come, as far as was seen."""
        has_ended = self.state in JOB_TERMINAL and self.have_all_ended()
        ran = bool(self.attempts) or self.scenario.play.end is None
        return has_ended and ran and self.scenario.play.until <= self.done

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the numbers of nodes that its generations may have."""
        infrastructure = self.scenario.play.request(self).get("infrastructure", {})
        return (1, NODES) if "elastic" in infrastructure else (NODES,)

    async def are_all_billed(self) -> bool:
        """Return whether the ledger takes no machine to be there."""
        async with self.scenario.world.engine.connect() as conn:
            return all(row.ended_at for row in await ledger.of_job(conn, self.job_id))

    async def head(self) -> Head:
        """Return HEAD."""
        data, _ = await self.scenario.store.read(self.job_id, HEAD)
        return Head.from_json(data)

    async def check_promises(self) -> None:
        """See rows and machines, and check the promises that hold at every moment."""
        if not self.job_id:
            return
        scenario = self.scenario
        async with scenario.world.engine.connect() as conn:
            self.attempts = await attempt_rows.of_job(conn, self.job_id)
            row = await job_rows.find(conn, self.job_id)
            if row is None:
                self.broken.append("an acknowledged job is forgotten")
                return
            self.broken += await promises.unordered_news(conn, self.job_id, self.heard)
        self.state = row.state
        self.broken += promises.doubled(scenario.cloud, self.attempts)
        if scenario.is_strict:
            self.broken += promises.unknown(scenario.cloud, scenario.attempts)
        self._match_machines()

    def _match_machines(self) -> None:
        """Drop the machines that Azure has taken, and add those that are new."""
        owners = {scale_set_name(a.id): a.id for a in self.attempts}
        owner_of: dict[str, str] = {}
        for scale_set in self.scenario.cloud.list_existing(()):
            owner = owners.get(scale_set.name, "")
            owner_of |= {i.vm_id: owner for i in scale_set.instances if owner and i.running}
        for vm_id in self.machines.keys() - owner_of.keys():
            del self.machines[vm_id]
        for vm_id in [v for v in owner_of if v not in self.machines]:
            self.machines[vm_id] = self._machine(vm_id, owner_of[vm_id])

    def _machine(self, vm_id: str, attempt_id: str) -> Machine:
        scenario = self.scenario
        container = WiredContainer(scenario.store, self.job_id, scenario.blob_wire)
        machine = Machine(
            vm_id,
            attempt_id,
            self.job_id,
            scenario.world.clock,
            scenario.node_wire,
            container,
            scenario.watch,
            scenario.kills_supervisor,
        )
        machine.chatty = bool(scenario.apart) or scenario.play.chatty
        machine.boots_never = not scenario.play.boots
        return machine
