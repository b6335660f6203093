"""The file of `rekindle pipeline`: phases in order, each the body of a job.

A model may be `$NAME`, an earlier phase: what that one has made. Nothing here talks to a service.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.cli.errors import ExitCode, Trouble
from rekindle.cli.formats import part
from rekindle.cli.submit import document_file, job_settings
from rekindle.cli.submit.document_file import UnreadableDocument
from rekindle.cli.submit.job_config import FILES, files_beside

Json = dict[str, Any]
MODEL = "model"
TAGS = ("pipeline", "phase", "written")  # members of the metadata that are ours
_NAME = re.compile(r"[A-Za-z0-9._-]{1,48}")
_EXAMPLE = "The quickstart has an example: docs/quickstart.md, From one model to the next."
_RULE = "1 to 48 letters, digits, dots, dashes and underscores"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One job of a pipeline, as it is written; files as they are named in it."""

    name: str
    body: Json

    @property
    def needs(self) -> tuple[str, ...]:
        """The phases whose models it reads."""
        return tuple(sorted({n[1:] for n in _named(self.body) if n.startswith("$")}))

    @property
    def written(self) -> str:
        """Changes with anything in it."""
        text = json.dumps(self.body, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def files(self) -> tuple[str, ...]:
        """Paths, or ids of uploads."""
        return tuple(self.body[name] for name in FILES if self.body.get(name))

    def with_models(self, found: Callable[[str], str]) -> Json:
        """The body with a model in the place of every `$NAME`."""
        return _mapped(self.body, lambda n: found(n[1:]) if n.startswith("$") else n)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A file that makes sense."""

    name: str
    phases: tuple[Phase, ...]

    def base_of(self, phase: Phase) -> str:
        """The model that the first phase of its line begins with."""
        named = str(phase.body[MODEL])
        if not named.startswith("$"):
            return named
        return self.base_of(next(p for p in self.phases if p.name == named[1:]))


def read(path: Path) -> Pipeline:
    """What the file says, or Trouble."""
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
    """The same of what was read from ``path``; files are sought beside it."""
    if not isinstance(document, dict) or set(document) != {"name", "phases"}:
        raise _broken(path, "it must hold `name` and `phases`, and nothing else")
    name = _name(document["name"], path, "name")
    listed = document["phases"]
    if not isinstance(listed, list) or not listed:
        raise _broken(path, "`phases` must be a list of at least one phase")
    phases: list[Phase] = []
    for number, item in enumerate(listed, start=1):
        phases.append(_phase(item, f"phase {number}", phases, path))
    return Pipeline(name=name, phases=tuple(phases))


def _phase(item: object, where: str, before: list[Phase], path: Path) -> Phase:
    if not isinstance(item, dict):
        raise _broken(path, f"{where} is no object")
    name = _name(item.get("name"), path, f"{where}: name")
    known = [phase.name for phase in before]
    if name in known:
        raise _broken(path, f"two phases are called {name}")
    body = {member: value for member, value in item.items() if member != "name"}
    for member in (MODEL, "training_file"):
        if not isinstance(body.get(member), str):
            raise _broken(path, f"phase {name}: `{member}` is missing")
    if reserved := set(TAGS) & set(part(body, "metadata")):
        raise _broken(path, f"phase {name}: metadata `{min(reserved)}` is set by this command")
    found = Phase(name=name, body=files_beside(body, path.parent))
    for needed in found.needs:
        if needed not in known:
            raise _broken(path, f"phase {name}: ${needed} is no phase before it")
    return found


def _named(body: Json) -> list[str]:
    """Every model that it names."""
    found: list[str] = []

    def note(name: str) -> str:
        found.append(name)
        return name

    _mapped(body, note)
    return found


def _mapped(body: Json, change: Callable[[str], str]) -> Json:
    """With each name of a model changed: the job's own, and those that its graders ask."""
    changed = body | {MODEL: change(str(body[MODEL]))}
    method = part(body, "method")
    learnt = part(method, "reinforcement")
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


def tags(pipeline: Pipeline, phase: Phase) -> Mapping[str, str]:
    """By which the phase's job is found again."""
    return dict(zip(TAGS, (pipeline.name, phase.name, phase.written), strict=True))


def _broken(path: Path, why: str, advice: str = _EXAMPLE) -> Trouble:
    message = f"{path}: {why.rstrip('.')}."
    return Trouble(message, advice, exit_code=ExitCode.USAGE, code="broken_pipeline")
