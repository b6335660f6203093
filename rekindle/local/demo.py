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
from rekindle.local.stack import sign_in_token, stack
from rekindle.local.state_folder import StackPorts, StackStartError, StateFolder

QUESTION = "What time do you open?"  # held out: no training row has these words
FINISH_SECONDS = 600.0
STEP_SECONDS = 300.0
OURS: dict[str, dict[str, Any]] = {
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
            "training_file": await self._upload("chats.jsonl"),
            "validation_file": await self._upload("unseen.jsonl", "--held-out"),
        }
        disturbed = await self._submit(files, "the job that will be evicted")
        base = asyncio.create_task(_ask(model_folder(self.model)))
        total = disturbed["progress"]["total_steps"]
        await self._evict(disturbed["id"], total // 4, notice=self.notices)
        await self._evict(disturbed["id"], total // 2, notice=False)
        disturbed = await self._finish(disturbed["id"])
        twin = await self._submit(files, "its twin, which runs without interruption")
        twin = await self._finish(twin["id"])
        return await self._report(disturbed, twin, await base)

    async def _upload(self, name: str, *options: str) -> str:
        path = self.folder / name
        await _python("trainer.samples", str(path), *options)
        with path.open("rb") as stream:
            file = await self.client.files.create(file=stream, purpose="fine-tune")
        rows = len(path.read_text().splitlines())
        self.view.say(f"uploaded {name}: {rows} chats, {file.id}")
        return file.id

    async def _submit(self, files: dict[str, str], what: str) -> dict[str, Any]:
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
                "infrastructure": OURS["infrastructure"],
                "training": OURS["training"] | recipe.training,
            },
        )
        shown: dict[str, Any] = job.model_dump()
        self.view.plan(what, shown)
        return shown

    async def _evict(self, job_id: str, step: int, *, notice: bool) -> None:
        """Evict one of the job's machines at ``step`` and wait until training continues."""
        job = await self._watch(job_id, lambda j: j["progress"]["step"] >= step, STEP_SECONDS)
        victim = (await faults.machines(self.stack, job["attempts"]["current"]))[-1]
        how = "with 30 s notice" if notice else "without notice"
        self.view.say(f"Azure evicts {victim.name} {how}", style="bold red")
        before = job["attempts"]["evictions"]
        await faults.evict(self.stack, victim, notice=notice)
        self.evicted_at.append((job["progress"]["step"], how))
        await self._watch(
            job_id,
            lambda j: j["attempts"]["evictions"] > before and j["phase"] == "training",
            STEP_SECONDS,
        )

    async def _finish(self, job_id: str) -> dict[str, Any]:
        job = await self._watch(job_id, lambda j: j["finished_at"] is not None, FINISH_SECONDS)
        if job["status"] != "succeeded":
            raise DemoFailed(f"job {job_id} {job['status']}: {job['error']}")
        return job

    async def _watch(self, job_id: str, done: Any, seconds: float) -> dict[str, Any]:  # noqa: ANN401
        """Poll the job and show updates until ``done(job)``."""
        latest = time.monotonic() + seconds
        while True:
            job = await self.client.get(f"/fine_tuning/jobs/{job_id}", cast_to=object)
            assert isinstance(job, dict)
            events = await self.client.fine_tuning.jobs.list_events(job_id, limit=50)
            self.view.show(job, [e.model_dump() for e in reversed(events.data)])
            if done(job):
                return job
            if job["finished_at"] is not None:
                raise DemoFailed(f"job {job_id} {job['status']} too early: {job['error']}")
            if time.monotonic() > latest:
                raise DemoFailed(f"job {job_id} was not there after {seconds:.0f} s: {job}")
            await asyncio.sleep(0.25)

    async def _report(
        self, disturbed: dict[str, Any], twin: dict[str, Any], base_answer: str
    ) -> dict[str, Any]:
        series = [await self._metrics(job["id"]) for job in (disturbed, twin)]
        curves = [_curve(rows, "loss") for rows in series]
        model = await self._download(disturbed["id"])
        before = json.loads((model / "report.json").read_text())["validation"]["before"]
        validation = [(0, before), *_curve(series[0], "valid_loss")]
        image = loss_plot.draw(curves[0], curves[1], validation, self.evicted_at, self.picture)
        self.view.say(f"loss plot: {image}")
        self.view.answers(QUESTION, base_answer, await _ask(model))
        attempts = await self._attempts(disturbed["id"])
        self.view.attempts(disturbed, attempts, twin)
        same_parameters = (
            disturbed["result"]["parameters_sha256"] == twin["result"]["parameters_sha256"]
        )
        return {
            "demo": "ok" if same_parameters and curves[0] == curves[1] else "failed",
            "job": disturbed["id"],
            "evictions": len(self.evicted_at),
            "lost_steps": sum(a["lost_steps"] for a in attempts),
            "loss_matches_uninterrupted": curves[0] == curves[1],
            "parameters_match_uninterrupted": same_parameters,
            "parameters_sha256": disturbed["result"]["parameters_sha256"],
            "attempts": len(attempts),
            "spent": disturbed["cost"]["spent"],
            "saved": disturbed["cost"]["saved"],
            "final_loss": curves[0][-1][1],
            "base_valid_loss": validation[0][1],
            "tuned_valid_loss": validation[-1][1],
            "picture": str(image),
        }

    async def _metrics(self, job_id: str) -> list[dict[str, Any]]:
        series = await self.client.get(f"/fine_tuning/jobs/{job_id}/metrics", cast_to=object)
        assert isinstance(series, dict)
        rows: list[dict[str, Any]] = series["data"]
        return rows

    async def _attempts(self, job_id: str) -> list[dict[str, Any]]:
        listed = await self.client.get(f"/fine_tuning/jobs/{job_id}/attempts", cast_to=object)
        assert isinstance(listed, dict)
        found: list[dict[str, Any]] = listed["data"]
        return found

    async def _download(self, job_id: str) -> Path:
        self.view.say("downloading the tuned model and asking the question")
        target = self.folder / "model"
        state = self.folder.parent
        await _python("rekindle.cli.main", "download", job_id, str(target), "--state", str(state))
        return target


def _curve(rows: Sequence[dict[str, Any]], name: str) -> list[tuple[int, float]]:
    return [(row["step"], row[name]) for row in rows if row.get(name) is not None]


async def _ask(model: Path) -> str:
    return await _python("trainer.answer", str(model), QUESTION, "--tokens", "32")


async def _python(*argv: str) -> str:
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


async def _main(state: Path, options: argparse.Namespace) -> dict[str, Any]:
    ports, models, engine = StackPorts.starting_at(options.port), (options.model,), options.engine
    layout = StackLayout(StateFolder(state), ports, models=models, engines=(engine,))
    view = demo_view.DemoView(demo_view.open_console(record=options.session is not None))
    view.say("starting Postgres, Azurite, the Azure emulator and the service")
    async with stack(layout, view.say) as crew:
        token = await sign_in_token(layout, crew)
        view.say("watch in a browser (this link signs you in once):")
        view.say(f"{layout.api_url}/#sign-in={token}")
        key = (layout.state / "api-key").read_text().strip()
        folder = state / "demo"
        folder.mkdir(exist_ok=True)
        async with AsyncOpenAI(base_url=f"{layout.api_url}/v1", api_key=key) as client:
            image = options.picture or folder / "loss.png"
            stack_facts, notices = StackInfo.read(state), engine is Engine.SCALE_SET
            demo = Demo(client, stack_facts, view, folder, image, options.model, notices)
            with view.live():
                said = await demo.run()
            if options.session is not None:
                view.save(options.session)
            return said


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
    began = time.monotonic()
    try:
        said = asyncio.run(_main(state.resolve(), options))
    except KeyboardInterrupt:
        print("demo: interrupted; all its processes have stopped", file=sys.stderr)
        return 130
    except (DemoFailed, StackStartError, TargetNotFound, OpenAIError, httpx.HTTPError) as error:
        said = {"demo": "failed", "error": str(error), "state": str(state)}
    said["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(said), flush=True)
    return 0 if said["demo"] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
