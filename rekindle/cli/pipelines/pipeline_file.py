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
from rekindle.cli.submit.job_config import FILES, files_beside

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
        return tuple(sorted({n[1:] for n in _named(self.body) if n.startswith("$")}))

    @property
    def written(self) -> str:
        """Hash of the body, which changes with any edit."""
        text = json.dumps(self.body, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def files(self) -> tuple[str, ...]:
        """File paths or ids that the body names."""
        return tuple(self.body[name] for name in FILES if self.body.get(name))

    def with_models(self, found: Callable[[str], str]) -> Json:
        """Return the body with a model in place of every `$NAME`."""
        return _mapped(self.body, lambda n: found(n[1:]) if n.startswith("$") else n)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A valid pipeline: its name and phases."""

    name: str
    phases: tuple[PipelinePhase, ...]

    def base_of(self, phase: PipelinePhase) -> str:
        """Return the model that the first phase of this phase's chain starts from."""
        named = str(phase.body[MODEL])
        if not named.startswith("$"):
            return named
        return self.base_of(next(p for p in self.phases if p.name == named[1:]))


def read(path: Path) -> Pipeline:
    """Read and validate a pipeline file; raise CliError."""
    try:
        document = document_file.read(path)
    except UnreadableDocument as error:
        raise _broken(path, str(error)) from None
    found = parse(document.value, path)
    for index, phase in enumerate(found.phases):
        if fault := job_settings.fault_of(phase.body):
            line = document.lines.get(f"phases.{index}.{fault.param}")
            where = f"line {line}: " if line else ""
            raise _broken(path, f"{where}phase {phase.name}: {fault.message}", fault.advice)
    return found


def parse(document: object, path: Path) -> Pipeline:
    """Validate a parsed pipeline; file paths are relative to ``path``."""
    if not isinstance(document, dict) or set(document) != {"name", "phases"}:
        raise _broken(path, "it must have `name` and `phases` and no other member")
    name = _name(document["name"], path, "name")
    listed = document["phases"]
    if not isinstance(listed, list) or not listed:
        raise _broken(path, "`phases` must be a list of at least one phase")
    phases: list[PipelinePhase] = []
    for number, item in enumerate(listed, start=1):
        phases.append(_phase(item, f"phase {number}", phases, path))
    return Pipeline(name=name, phases=tuple(phases))


def _phase(item: object, where: str, before: list[PipelinePhase], path: Path) -> PipelinePhase:
    if not isinstance(item, dict):
        raise _broken(path, f"{where} is not an object")
    name = _name(item.get("name"), path, f"{where}: name")
    known = [phase.name for phase in before]
    if name in known:
        raise _broken(path, f"two phases have the name {name}")
    body = {member: value for member, value in item.items() if member != "name"}
    for member in (MODEL, "training_file"):
        if not isinstance(body.get(member), str):
            raise _broken(path, f"phase {name}: `{member}` is missing")
    if reserved := set(TAGS) & set(object_member(body, "metadata")):
        raise _broken(path, f"phase {name}: metadata `{min(reserved)}` is reserved")
    found = PipelinePhase(name=name, body=files_beside(body, path.parent))
    for needed in found.needs:
        if needed not in known:
            raise _broken(path, f"phase {name}: ${needed} is not an earlier phase")
    return found


def _named(body: Json) -> list[str]:
    """Return every model that the body names."""
    found: list[str] = []

    def note(name: str) -> str:
        found.append(name)
        return name

    _mapped(body, note)
    return found


def _mapped(body: Json, change: Callable[[str], str]) -> Json:
    """Return the body with every model name changed: the job's and its graders'."""
    changed = body | {MODEL: change(str(body[MODEL]))}
    method = object_member(body, "method")
    learnt = object_member(method, "reinforcement")
    if not isinstance(learnt.get("grader"), dict):
        return changed
    grader = _asking(learnt["grader"], change)
    return changed | {"method": {**method, "reinforcement": {**learnt, "grader": grader}}}


def _asking(grader: Json, change: Callable[[str], str]) -> Json:
    parts = grader.get("graders")
    if isinstance(parts, dict):
        asked = {k: _asking(v, change) if isinstance(v, dict) else v for k, v in parts.items()}
        return grader | {"graders": asked}
    named = grader.get(MODEL)
    return grader | {MODEL: change(named)} if isinstance(named, str) else grader


def _name(value: object, path: Path, where: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _broken(path, f"{where} is {value!r:.60}, but it must be {_RULE}")
    return value


def tags(pipeline: Pipeline, phase: PipelinePhase) -> Mapping[str, str]:
    """Return the metadata by which the phase's job is found again."""
    return dict(zip(TAGS, (pipeline.name, phase.name, phase.written), strict=True))


def _broken(path: Path, why: str, advice: str = _EXAMPLE) -> CliError:
    message = f"{path}: {why.rstrip('.')}."
    return CliError(message, advice, exit_code=ExitCode.USAGE, code="broken_pipeline")
