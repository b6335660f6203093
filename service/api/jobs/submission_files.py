"""Find the files that a request for a job names, and check that the job can train on them."""

from collections.abc import Hashable

from contract.job import JobRequest
from service.api.deps import Parts
from service.api.jobs.job_requests import method_of, training_of
from service.db.files import files as file_rows
from service.db.files.files import File
from service.db.projects.keys import Caller
from service.domain.errors import InvalidRequest, MissingFile, WrongFileFormat
from service.domain.reporting import result_file
from service.domain.training.methods import formats, learning_from
from service.domain.training.recipe import Training
from service.domain.training.reinforcement import missing_member
from trainer.contract import Reinforcement


async def find_files(parts: Parts, caller: Caller, request: JobRequest) -> tuple[File, File | None]:
    """Return the training file and the validation file, or raise InvalidRequest."""
    files = []
    for param in ("training_file", "validation_file"):
        file_id = getattr(request, param)
        file = await _find_file(parts, caller, file_id) if file_id else None
        if file_id and file is None:
            raise MissingFile(
                f"{param}: no file {file_id}. Upload it with POST /v1/files first.",
                param=param,
            )
        if file and file.purpose == result_file.PURPOSE:
            raise InvalidRequest(
                f"{param}: {file_id} is a job's result, not a dataset. Upload one with "
                "POST /v1/files.",
                param=param,
            )
        if file:
            _check_format(file, param, training_of(request))
            _check_members(file, param, training_of(request).reinforcement)
        files.append(file)
    training, validation = files
    assert training is not None, "training_file is required"
    if method_of(request) == "classification":
        _check_labels(training, validation)
    return training, validation


async def _find_file(parts: Parts, caller: Caller, file_id: str) -> File | None:
    async def read() -> File | None:
        async with parts.reading.connect() as conn:
            return await file_rows.find(conn, caller.project_id, file_id)

    return await parts.plan_inputs.get(cache_key(caller, file_id), read)


def cache_key(caller: Caller, file_id: str | None) -> Hashable:
    """Return the key of a file in ``Parts.plan_inputs``."""
    return ("file", caller.project_id, file_id)


def _check_format(file: File, param: str, training: Training) -> None:
    accepted = formats(training.method, training.ranked)
    if file.format not in accepted:
        methods = " or ".join(learning_from(file.format))
        plural = " or ".join(rows.plural for rows in accepted)
        raise WrongFileFormat(
            f"{param}: {file.id} holds {file.format.plural}, and method {training.method} learns "
            f"from {plural}. Give a file of {plural}, or choose method {methods}.",
            param=param,
        )


def _check_labels(training: File, validation: File | None) -> None:
    if len(training.labels) < 2:
        raise InvalidRequest(
            f"training_file: every row of {training.id} has the label {training.labels[0]!r}. "
            "Classification needs at least two labels.",
            code="too_few_labels",
            param="training_file",
        )
    unknown = sorted(set(validation.labels if validation else ()) - set(training.labels))
    if validation and unknown:
        raise InvalidRequest(
            f"validation_file: {validation.id} has the label {unknown[0]!r}, and no row of the "
            "training file has it. Leave those rows out, or train on some.",
            code="unknown_label",
            param="validation_file",
        )


def _check_members(file: File, param: str, settings: Reinforcement | None) -> None:
    if settings is not None and (problem := missing_member(settings, file.members)):
        raise InvalidRequest(
            f"{param}: {problem}. Add it to every row of {file.id}, or change the grader.",
            code="missing_grader_input",
            param=param,
        )
