"""The run spec of a job: the resolved recipe for the trainer, with the DeepSpeed configuration."""

from datetime import UTC
from typing import Any

from service.db.files.files import CONTAINER, File
from service.db.jobs.jobs import JobRow
from service.domain.planning.option import Option
from service.domain.planning.plan import Plan
from service.domain.training.recipe import Recipe
from trainer.contract import InputFile, PinnedModel, Rung, RunSpec, engine_config

_NO_FILE = InputFile(path="", size=0, sha256="")


def run_spec(
    job: JobRow, plan: Plan, model: PinnedModel, files: dict[str, File], judge: PinnedModel | None
) -> RunSpec:
    """Return the job's run spec. Pure: the same job always has the same."""
    training = files[job.training_file]
    validation = files[job.validation_file] if job.validation_file else None
    return _run_spec(
        job,
        plan.recipe,
        plan.chosen,
        base_model=model,
        training_file=_input(training),
        validation_file=_input(validation) if validation else None,
        reward_model=judge,
        labels=tuple(training.labels) if plan.recipe.method == "classification" else (),
    )


def deepspeed_config(
    job: JobRow, nodes: int, rung: Rung | None, device: str
) -> tuple[int, dict[str, Any]]:
    """Return the world size and the configuration that DeepSpeed gets.

    ``nodes``: machines of the newest generation; 0: as many as planned. ``rung``: of that
    generation. No model and no file is in the configuration, so none is looked up.
    """
    recipe, chosen = Recipe.from_dict(job.plan["recipe"]), Option.from_dict(job.plan["options"][0])
    spec = _run_spec(
        job,
        recipe,
        chosen,
        base_model=PinnedModel(name=job.model, revision="", files=()),
        training_file=_NO_FILE,
        validation_file=None,
    )
    world_size = (nodes or chosen.nodes) * chosen.processes_per_node
    return world_size, engine_config(spec.on(rung), world_size, device)


def _run_spec(job: JobRow, recipe: Recipe, chosen: Option, **files: Any) -> RunSpec:  # noqa: ANN401
    """Return a run spec; ``files`` are the members that name models and files."""
    return RunSpec(
        version=2,  # with its first event
        job_id=job.id,
        seed=job.request["seed"],
        method=recipe.method,
        total_steps=recipe.total_steps,
        global_batch=recipe.global_batch,
        micro_batch=chosen.micro_batch,
        max_seq_len=recipe.max_seq_len,
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps,
        min_lr_ratio=recipe.min_lr_ratio,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        zero_stage=chosen.zero_stage,
        answers_per_row=recipe.answers,
        checkpoint_seconds=recipe.checkpoint_seconds or chosen.checkpoint_seconds,
        eval_steps=recipe.eval_steps,
        nodes=chosen.nodes,
        processes_per_node=chosen.processes_per_node,
        verify=chosen.verify_seconds > 0,
        **recipe.options,
        date=job.created_at.astimezone(UTC).date().isoformat(),
        **files,
    )


def _input(file: File) -> InputFile:
    return InputFile(path=f"{CONTAINER}/{file.id}", size=file.bytes, sha256=file.sha256)
