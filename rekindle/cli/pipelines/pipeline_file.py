"""The file of `rekindle pipeline`: phases in order, each the body of a job.

A model may be `$NAME`: the model of an earlier phase. This module does not talk to a service.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.formats import object_member
from rekindle.cli.submit import document_file, job_settings
from rekindle.cli.submit.document_file import UnreadableDocument
from rekindle.cli.submit.job_config import FILES, resolve_file_paths

Json = dict[str, Any]
MODEL = "model"
TAGS = ("pipeline", "phase", "written")  # reserved members of the metadata
_NAME = re.compile(r"[A-Za-z0-9._-]{1,48}")
_EXAMPLE = "See the example in docs/training.md#from-one-model-to-the-next."
_RULE = "1 to 48 letters, digits, dots, dashes and underscores"


@dataclass(frozen=True, kw_only=True)
class PipelinePhase:
    """One job of a pipeline: its name and request body."""

    name: str
    body: Json

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the phases whose models it uses."""
        return tuple(sorted({n[1:] for n in _model_names(self.body) if n.startswith("$")}))

    @property
    def body_hash(self) -> str:
        """Hash of the body, which changes with any edit."""
        text = json.dumps(self.body, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def files(self) -> tuple[str, ...]:
        """File paths or ids that the body names."""
        return tuple(self.body[name] for name in FILES if self.body.get(name))

    def with_models(self, model_of: Callable[[str], str]) -> Json:
        """Return the body with a model in place of every `$NAME`."""
        return _map_models(self.body, lambda n: model_of(n[1:]) if n.startswith("$") else n)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A valid pipeline: its name and phases."""

    name: str
    phases: tuple[PipelinePhase, ...]

    def base_model_of(self, phase: PipelinePhase) -> str:
        """Return the model that the first phase of this phase's chain starts from."""
        model = str(phase.body[MODEL])
        if not model.startswith("$"):
            return model
        return self.base_model_of(next(p for p in self.phases if p.name == model[1:]))


def read_pipeline(path: Path) -> Pipeline:
    """Read and validate a pipeline file; raise CliError."""
    try:
        document = document_file.read_document(path)
    except UnreadableDocument as error:
        raise _invalid_pipeline(path, str(error)) from None
    pipeline = parse_pipeline(document.value, path)
    for index, phase in enumerate(pipeline.phases):
        if fault := job_settings.find_fault(phase.body):
            line = document.lines.get(f"phases.{index}.{fault.param}")
            where = f"line {line}: " if line else ""
            raise _invalid_pipeline(
                path, f"{where}phase {phase.name}: {fault.message}", fault.advice
            )
    return pipeline


def parse_pipeline(document: object, path: Path) -> Pipeline:
    """Validate a parsed pipeline; file paths are relative to ``path``."""
    if not isinstance(document, dict) or set(document) != {"name", "phases"}:
        raise _invalid_pipeline(path, "it must have `name` and `phases` and no other member")
    name = _parse_name(document["name"], path, "name")
    listed = document["phases"]
    if not isinstance(listed, list) or not listed:
        raise _invalid_pipeline(path, "`phases` must be a list of at least one phase")
    phases: list[PipelinePhase] = []
    for number, item in enumerate(listed, start=1):
        phases.append(_parse_phase(item, f"phase {number}", phases, path))
    return Pipeline(name=name, phases=tuple(phases))


def _parse_phase(
    item: object, where: str, earlier: list[PipelinePhase], path: Path
) -> PipelinePhase:
    if not isinstance(item, dict):
        raise _invalid_pipeline(path, f"{where} is not an object")
    name = _parse_name(item.get("name"), path, f"{where}: name")
    names = [earlier_phase.name for earlier_phase in earlier]
    if name in names:
        raise _invalid_pipeline(path, f"two phases have the name {name}")
    body = {member: value for member, value in item.items() if member != "name"}
    for member in (MODEL, "training_file"):
        if not isinstance(body.get(member), str):
            raise _invalid_pipeline(path, f"phase {name}: `{member}` is missing")
    if reserved := set(TAGS) & set(object_member(body, "metadata")):
        raise _invalid_pipeline(path, f"phase {name}: metadata `{min(reserved)}` is reserved")
    phase = PipelinePhase(name=name, body=resolve_file_paths(body, path.parent))
    for needed in phase.needs:
        if needed not in names:
            raise _invalid_pipeline(path, f"phase {name}: ${needed} is not an earlier phase")
    return phase


def _model_names(body: Json) -> list[str]:
    """Return every model that the body names."""
    names: list[str] = []

    def record(name: str) -> str:
        names.append(name)
        return name

    _map_models(body, record)
    return names


def _map_models(body: Json, change: Callable[[str], str]) -> Json:
    """Return the body with every model name changed: the job's and its graders'."""
    mapped = body | {MODEL: change(str(body[MODEL]))}
    method = object_member(body, "method")
    reinforcement = object_member(method, "reinforcement")
    if not isinstance(reinforcement.get("grader"), dict):
        return mapped
    grader = _map_grader_models(reinforcement["grader"], change)
    return mapped | {"method": {**method, "reinforcement": {**reinforcement, "grader": grader}}}


def _map_grader_models(grader: Json, change: Callable[[str], str]) -> Json:
    parts = grader.get("graders")
    if isinstance(parts, dict):
        mapped = {
            k: _map_grader_models(v, change) if isinstance(v, dict) else v for k, v in parts.items()
        }
        return grader | {"graders": mapped}
    model = grader.get(MODEL)
    return grader | {MODEL: change(model)} if isinstance(model, str) else grader


def _parse_name(value: object, path: Path, where: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _invalid_pipeline(path, f"{where} is {value!r:.60}, but it must be {_RULE}")
    return value


def phase_tags(pipeline: Pipeline, phase: PipelinePhase) -> Mapping[str, str]:
    """Return the metadata by which the phase's job is found again."""
    return dict(zip(TAGS, (pipeline.name, phase.name, phase.body_hash), strict=True))


def _invalid_pipeline(path: Path, why: str, advice: str = _EXAMPLE) -> CliError:
    message = f"{path}: {why.rstrip('.')}."
    return CliError(message, advice, exit_code=ExitCode.USAGE, code="broken_pipeline")
