"""Prepare a new job: check its rows, plan with their token counts, and write its run spec."""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.core import leases
from service.db.core.leases import Claim
from service.db.files import files
from service.db.files.files import File
from service.db.jobs import events, jobs
from service.db.jobs.jobs import JobRow
from service.db.money import storage_cost
from service.domain.errors import MissingFile
from service.domain.humanize import format_duration
from service.domain.lifecycle.job import Job, MoveJob
from service.domain.models import lineage
from service.domain.planning.plan import Plan
from service.domain.states import JobState
from service.domain.training import preflight
from service.operations.jobs import file_warnings
from service.operations.jobs.preflights import Checked, Preflights, RunningCheck, row_checks
from service.operations.jobs.run_specs import run_spec
from service.operations.models import bases
from service.reconciler.attempts import measures
from service.storage.store import BlobStore, PreconditionFailed
from trainer.contract import HEAD, RUN_SPEC, Head, PinnedModel, RunSpec

log = logging.getLogger(__name__)
Replan = Callable[[JobRow, Plan, Checked], Awaitable[Plan]]
_WAIT_SECONDS = 1.0  # for a check of rows: most files are small
_RECHECK_DELAY = timedelta(seconds=1)  # for a check that takes longer


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Prepares a job. Safe to repeat from any point: only the last write moves the job."""

    engine: AsyncEngine
    store: BlobStore
    preflights: Preflights
    replan: Replan
    now: Callable[[], datetime]

    async def step(self, claim: Claim, job: Job) -> None:
        """Move the job to QUEUED, or report the progress of the check of its rows.

        Raises InvalidRequest for a job that can never train.
        """
        row = await self._find_row(job)
        plan = row.parsed_plan
        model, judge = await self._find_models(row, plan)
        by_id = await self._find_files(row)
        checked = await self._check_rows(row, plan, model, by_id)
        if isinstance(checked, RunningCheck):
            await self._report_progress(claim, checked)
            return
        _refuse_untrainable(row, by_id, checked)
        planned = await self.replan(row, plan, checked)
        training = by_id[row.training_file]
        validation = by_id.get(row.validation_file or "")
        warnings = preflight.sentences((training.filename, checked.training))
        if validation:
            warnings += preflight.sentences((validation.filename, checked.validation))
        spec = replace(run_spec(row, planned, model, by_id, judge), data_warnings=tuple(warnings))
        await self._write_inputs(claim, job, spec)
        async with self.engine.begin() as conn:
            await storage_cost.start_metering(conn, job.id, self.now())
            await jobs.move(
                conn,
                claim,
                job,
                MoveJob(to=JobState.QUEUED, reason="validated, waiting for capacity"),
                self.now(),
                run_spec_sha256=hashlib.sha256(spec.to_json().encode()).hexdigest(),
                inputs=_input_paths(spec),
                plan=planned.as_dict(),
                total_steps=planned.recipe.total_steps,
            )
            await file_warnings.record_warnings(
                conn, job.id, training, validation, checked, self.now()
            )
            if text := _describe_new_forecast(plan, planned):
                await events.add(conn, job.id, self.now(), "plan.counted", text)
        measures.observe_job_move(claim, JobState.QUEUED, self.now())

    async def _check_rows(
        self, row: JobRow, plan: Plan, model: PinnedModel, by_id: dict[str, File]
    ) -> Checked | RunningCheck:
        training = by_id[row.training_file]
        validation = by_id.get(row.validation_file or "")
        today = row.created_at.astimezone(UTC).date()
        checks = row_checks(training, validation, model, plan.recipe, today)
        return await self.preflights.check_rows(checks, _WAIT_SECONDS)

    async def _report_progress(self, claim: Claim, check: RunningCheck) -> None:
        text = f"checking the rows: {check.rows_done:,} of {check.rows:,} are done"
        now = self.now()
        async with self.engine.begin() as conn:
            await leases.release(conn, claim, now, now + _RECHECK_DELAY, reason=text)

    async def _write_inputs(self, claim: Claim, job: Job, spec: RunSpec) -> None:
        """Write run spec and HEAD to Blob."""
        await self.store.create_container(job.id)
        async with self.engine.connect() as conn:
            await leases.check(conn, claim)  # another release may write different bytes
        await self.store.write(job.id, RUN_SPEC, spec.to_json().encode())
        with suppress(PreconditionFailed):
            empty = Head(generation=0).to_json().encode()
            await self.store.write(job.id, HEAD, empty, if_absent=True)

    async def _find_row(self, job: Job) -> JobRow:
        async with self.engine.connect() as conn:
            row = await jobs.find(conn, job.id)
        assert row is not None
        return row

    async def _find_models(self, row: JobRow, plan: Plan) -> tuple[PinnedModel, PinnedModel | None]:
        """Return the base model, and the reward model of the grader if there is one."""
        find = partial(bases.find_basis, self.engine, self.store, row.project_id)
        base, judge_name = await find(row.model), lineage.judge(plan.recipe.reinforcement)
        judge = await find(judge_name, lineage.OF_GRADER) if judge_name else None
        return base.staged.model, judge.staged.model if judge else None

    async def _find_files(self, row: JobRow) -> dict[str, File]:
        files_by_id = {}
        async with self.engine.connect() as conn:
            for file_id in filter(None, (row.training_file, row.validation_file)):
                file = await files.find(conn, row.project_id, file_id)
                if file is None:
                    raise MissingFile(f"File {file_id} was deleted.")
                files_by_id[file_id] = file
        return files_by_id


def _refuse_untrainable(row: JobRow, by_id: dict[str, File], checked: Checked) -> None:
    name = by_id[row.training_file].filename
    preflight.refuse_untrainable(name, checked.training, param="training_file")
    if row.validation_file and checked.validation:
        preflight.refuse_untrainable(
            by_id[row.validation_file].filename,
            checked.validation,
            param="validation_file",
            is_validation=True,
        )


def _describe_new_forecast(before: Plan, after: Plan) -> str:
    """Return the message about the new forecast; empty if it was exact before."""
    if before.data is not None or after.data is None:
        return ""
    data, best, former = after.data, after.chosen, before.chosen
    return (
        f"Counted {data.examples:,} examples with {data.kept_tokens:,} tokens, of which "
        f"{data.trained_tokens:,} are trained. The forecast is now about {best.cost_p50} USD and "
        f"{format_duration(best.duration_p50)}; with estimated lengths it was {former.cost_p50} "
        f"USD and {format_duration(former.duration_p50)}."
    )


def _input_paths(spec: RunSpec) -> list[str]:
    data = [spec.training_file, *([spec.validation_file] if spec.validation_file else [])]
    judge = spec.reward_model.files if spec.reward_model else ()
    start = spec.base_model.checkpoint
    converted = (*start.files, start.run_spec) if start else ()
    return [f.path for f in (*spec.base_model.files, *converted, *judge, *data)]
