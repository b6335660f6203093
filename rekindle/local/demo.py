"""`make demo`: train a job end to end on the local stack; the last output line is JSON.

The job trains on two nodes and is evicted twice, once with Azure's notice and once without. It
resumes each time and ends with the same parameters as an uninterrupted twin. The tuned model
answers a question that the base model cannot answer.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI, OpenAIError

from contract.choices import Engine
from rekindle.local import demo_view, faults, loss_plot
from rekindle.local.layout import (
    BASE_MODELS,
    ENGINE_HELP,
    REAL_MODEL,
    TINY_MODEL,
    StackLayout,
    model_folder,
)
from rekindle.local.running_stack import StackInfo, TargetNotFound
from rekindle.local.stack import create_sign_in_token, run_stack
from rekindle.local.state_folder import StackPorts, StackStartError, StateFolder

QUESTION = "What time do you open?"  # held out: no training row has these words
FINISH_SECONDS = 600.0
STEP_SECONDS = 300.0
JOB_OPTIONS: dict[str, dict[str, Any]] = {
    "infrastructure": {"nodes": 2},
    "training": {"max_seq_len": 128, "checkpoint_seconds": 3, "eval_steps": 6, "zero_stage": 2},
}


@dataclass(frozen=True)
class DemoRecipe:
    """Hyperparameters for a base model in the demo."""

    epochs: int
    batch_size: int
    training: dict[str, object]


RECIPES = {
    REAL_MODEL: DemoRecipe(4, 8, {"adapter": {"type": "lora", "r": 16}, "learning_rate": 0.002}),
    TINY_MODEL: DemoRecipe(20, 8, {"learning_rate": 0.002}),
}


class DemoFailed(Exception):
    """The product did not keep a promise."""


@dataclass
class Demo:
    """One run of the demo on a running stack."""

    client: AsyncOpenAI
    stack: StackInfo
    view: demo_view.DemoView
    folder: Path
    picture: Path
    model: str
    notices: bool  # whether machines get a notice before an eviction
    evicted_at: list[tuple[int, str]] = field(default_factory=list)

    async def run(self) -> dict[str, Any]:
        """Run the demo and return the result for the last line."""
        files = {
            "training_file": await self._upload_samples("chats.jsonl"),
            "validation_file": await self._upload_samples("unseen.jsonl", "--held-out"),
        }
        evicted_job = await self._submit_job(files, "the job that will be evicted")
        base = asyncio.create_task(_answer_question(model_folder(self.model)))
        total = evicted_job["progress"]["total_steps"]
        await self._evict_machine(evicted_job["id"], total // 4, notice=self.notices)
        await self._evict_machine(evicted_job["id"], total // 2, notice=False)
        evicted_job = await self._wait_until_finished(evicted_job["id"])
        twin = await self._submit_job(files, "its twin, which runs without interruption")
        twin = await self._wait_until_finished(twin["id"])
        return await self._build_report(evicted_job, twin, await base)

    async def _upload_samples(self, name: str, *options: str) -> str:
        path = self.folder / name
        await _run_module("trainer.samples", str(path), *options)
        with path.open("rb") as stream:
            file = await self.client.files.create(file=stream, purpose="fine-tune")
        rows = len(path.read_text().splitlines())
        self.view.print_line(f"uploaded {name}: {rows} chats, {file.id}")
        return file.id

    async def _submit_job(self, files: dict[str, str], title: str) -> dict[str, Any]:
        recipe = RECIPES[self.model]
        hyperparameters = {"n_epochs": recipe.epochs, "batch_size": recipe.batch_size}
        job = await self.client.fine_tuning.jobs.create(
            model=self.model,
            training_file=files["training_file"],
            seed=7,
            suffix="demo",
            extra_body={
                **files,
                "method": {
                    "type": "supervised",
                    "supervised": {"hyperparameters": hyperparameters},
                },
                "infrastructure": JOB_OPTIONS["infrastructure"],
                "training": JOB_OPTIONS["training"] | recipe.training,
            },
        )
        document: dict[str, Any] = job.model_dump()
        self.view.print_plan(title, document)
        return document

    async def _evict_machine(self, job_id: str, step: int, *, notice: bool) -> None:
        """Evict one of the job's machines at ``step`` and wait until training continues."""
        job = await self._wait_for(job_id, lambda j: j["progress"]["step"] >= step, STEP_SECONDS)
        victim = (await faults.list_machines(self.stack, job["attempts"]["current"]))[-1]
        notice_text = "with 30 s notice" if notice else "without notice"
        self.view.print_line(f"Azure evicts {victim.name} {notice_text}", style="bold red")
        before = job["attempts"]["evictions"]
        await faults.evict_vm(self.stack, victim, notice=notice)
        self.evicted_at.append((job["progress"]["step"], notice_text))
        await self._wait_for(
            job_id,
            lambda j: j["attempts"]["evictions"] > before and j["phase"] == "training",
            STEP_SECONDS,
        )

    async def _wait_until_finished(self, job_id: str) -> dict[str, Any]:
        job = await self._wait_for(job_id, lambda j: j["finished_at"] is not None, FINISH_SECONDS)
        if job["status"] != "succeeded":
            raise DemoFailed(f"job {job_id} {job['status']}: {job['error']}")
        return job

    async def _wait_for(self, job_id: str, is_done: Any, seconds: float) -> dict[str, Any]:  # noqa: ANN401
        """Poll the job and show updates until ``done(job)``."""
        deadline = time.monotonic() + seconds
        while True:
            job = await self.client.get(f"/fine_tuning/jobs/{job_id}", cast_to=object)
            assert isinstance(job, dict)
            events = await self.client.fine_tuning.jobs.list_events(job_id, limit=50)
            self.view.update_job(job, [e.model_dump() for e in reversed(events.data)])
            if is_done(job):
                return job
            if job["finished_at"] is not None:
                raise DemoFailed(f"job {job_id} {job['status']} too early: {job['error']}")
            if time.monotonic() > deadline:
                raise DemoFailed(f"job {job_id} was not there after {seconds:.0f} s: {job}")
            await asyncio.sleep(0.25)

    async def _build_report(
        self, evicted_job: dict[str, Any], twin: dict[str, Any], base_answer: str
    ) -> dict[str, Any]:
        series = [await self._read_metrics(job["id"]) for job in (evicted_job, twin)]
        curves = [_curve(rows, "loss") for rows in series]
        model = await self._download_model(evicted_job["id"])
        before = json.loads((model / "report.json").read_text())["validation"]["before"]
        validation = [(0, before), *_curve(series[0], "valid_loss")]
        image = loss_plot.draw_losses(
            curves[0], curves[1], validation, self.evicted_at, self.picture
        )
        self.view.print_line(f"loss plot: {image}")
        self.view.print_answers(QUESTION, base_answer, await _answer_question(model))
        attempts = await self._read_attempts(evicted_job["id"])
        self.view.print_attempts(evicted_job, attempts, twin)
        same_parameters = (
            evicted_job["result"]["parameters_sha256"] == twin["result"]["parameters_sha256"]
        )
        return {
            "demo": "ok" if same_parameters and curves[0] == curves[1] else "failed",
            "job": evicted_job["id"],
            "evictions": len(self.evicted_at),
            "lost_steps": sum(a["lost_steps"] for a in attempts),
            "loss_matches_uninterrupted": curves[0] == curves[1],
            "parameters_match_uninterrupted": same_parameters,
            "parameters_sha256": evicted_job["result"]["parameters_sha256"],
            "attempts": len(attempts),
            "spent": evicted_job["cost"]["spent"],
            "saved": evicted_job["cost"]["saved"],
            "final_loss": curves[0][-1][1],
            "base_valid_loss": validation[0][1],
            "tuned_valid_loss": validation[-1][1],
            "picture": str(image),
        }

    async def _read_metrics(self, job_id: str) -> list[dict[str, Any]]:
        series = await self.client.get(f"/fine_tuning/jobs/{job_id}/metrics", cast_to=object)
        assert isinstance(series, dict)
        rows: list[dict[str, Any]] = series["data"]
        return rows

    async def _read_attempts(self, job_id: str) -> list[dict[str, Any]]:
        listed = await self.client.get(f"/fine_tuning/jobs/{job_id}/attempts", cast_to=object)
        assert isinstance(listed, dict)
        attempts: list[dict[str, Any]] = listed["data"]
        return attempts

    async def _download_model(self, job_id: str) -> Path:
        self.view.print_line("downloading the tuned model and asking the question")
        target = self.folder / "model"
        state = self.folder.parent
        await _run_module(
            "rekindle.cli.main", "download", job_id, str(target), "--state", str(state)
        )
        return target


def _curve(rows: Sequence[dict[str, Any]], name: str) -> list[tuple[int, float]]:
    return [(row["step"], row[name]) for row in rows if row.get(name) is not None]


async def _answer_question(model: Path) -> str:
    return await _run_module("trainer.answer", str(model), QUESTION, "--tokens", "32")


async def _run_module(*argv: str) -> str:
    """Run one of our programs and return its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *argv,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    if process.returncode:
        raise DemoFailed(f"{argv[0]} failed: {errors.decode()[-2000:]}")
    return output.decode().strip()


async def _run_demo(state: Path, options: argparse.Namespace) -> dict[str, Any]:
    ports, models, engine = StackPorts.starting_at(options.port), (options.model,), options.engine
    layout = StackLayout(StateFolder(state), ports, models=models, engines=(engine,))
    view = demo_view.DemoView(demo_view.open_console(record=options.session is not None))
    view.print_line("starting Postgres, Azurite, the Azure emulator and the service")
    async with run_stack(layout, view.print_line) as runner:
        token = await create_sign_in_token(layout, runner)
        view.print_line("watch in a browser (this link signs you in once):")
        view.print_line(f"{layout.api_url}/#sign-in={token}")
        key = (layout.state / "api-key").read_text().strip()
        folder = state / "demo"
        folder.mkdir(exist_ok=True)
        async with AsyncOpenAI(base_url=f"{layout.api_url}/v1", api_key=key) as client:
            image = options.picture or folder / "loss.png"
            stack_info, notices = StackInfo.read(state), engine is Engine.SCALE_SET
            demo = Demo(client, stack_info, view, folder, image, options.model, notices)
            with view.show_progress_line():
                result = await demo.run()
            if options.session is not None:
                view.save_svg(options.session)
            return result


def main() -> int:
    """Run the demo on a temporary stack."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument(
        "--state", type=Path, default=None, help="state folder; default: a temporary folder"
    )
    parser.add_argument("--port", type=int, default=8180, help="first of four consecutive ports")
    parser.add_argument("--picture", type=Path, help="file for the loss plot: .png or .svg")
    parser.add_argument("--session", type=Path, help="file for a recording of the terminal: .svg")
    parser.add_argument(
        "--model", choices=BASE_MODELS, default=REAL_MODEL, help="base model to train"
    )
    parser.add_argument(
        "--engine", type=Engine, choices=list(Engine), default=Engine.SCALE_SET, help=ENGINE_HELP
    )
    options = parser.parse_args()
    state = options.state or Path(tempfile.mkdtemp(prefix="rekindle-demo-"))
    start = time.monotonic()
    try:
        result = asyncio.run(_run_demo(state.resolve(), options))
    except KeyboardInterrupt:
        print("demo: interrupted; all its processes have stopped", file=sys.stderr)
        return 130
    except (DemoFailed, StackStartError, TargetNotFound, OpenAIError, httpx.HTTPError) as error:
        result = {"demo": "failed", "error": str(error), "state": str(state)}
    result["seconds"] = round(time.monotonic() - start, 1)
    print(json.dumps(result), flush=True)
    return 0 if result["demo"] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
