"""Grader objects of reinforcement fine-tuning, as OpenAI writes them, parsed and checked.

Part of the contract: the service checks what a user sends, the trainer makes graders of it
(`trainer/graders`). Standard library only. `docs/graders.md` is the user's page.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trainer.contract.grader_formula import FUNCTIONS, check_formula
from trainer.contract.grader_templates import find_member, item_paths, parse_template
from trainer.contract.wire import Message, decode

MOST_GRADERS = 16  # in one multi grader


class StringOperation(StrEnum):
    """How string_check compares."""

    EQ = "eq"
    NE = "ne"
    LIKE = "like"  # the input contains the reference
    ILIKE = "ilike"  # the same, whatever the case


class Metric(StrEnum):
    """How text_similarity measures; each from 0 to 1."""

    FUZZY_MATCH = "fuzzy_match"
    BLEU = "bleu"
    GLEU = "gleu"
    ROUGE_1 = "rouge_1"
    ROUGE_2 = "rouge_2"
    ROUGE_3 = "rouge_3"
    ROUGE_4 = "rouge_4"
    ROUGE_5 = "rouge_5"
    ROUGE_L = "rouge_l"


@dataclass(frozen=True, kw_only=True)
class _NamedGrader(Message):
    """The members of every grader."""

    type: str
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class StringCheck(_NamedGrader):
    """1 if the comparison holds, else 0."""

    input: str
    reference: str
    operation: StringOperation


@dataclass(frozen=True, kw_only=True)
class TextSimilarity(_NamedGrader):
    """How near two texts are, from 0 to 1."""

    input: str
    reference: str
    evaluation_metric: Metric


@dataclass(frozen=True, kw_only=True)
class ExactAnswer(_NamedGrader):
    """1 if two texts have the same final answer, else 0. OpenAI has no such type."""

    input: str
    reference: str


@dataclass(frozen=True, kw_only=True)
class PythonGrader(_NamedGrader):
    """The value that the user's `grade(sample, item)` returns."""

    source: str
    image_tag: str | None = None  # OpenAI's; read by nothing here


@dataclass(frozen=True, kw_only=True)
class RewardModelGrader(_NamedGrader):
    """The score that a reward model gives the chat with the answer. OpenAI has no such type."""

    model: str  # of a job of method `reward`


@dataclass(frozen=True, kw_only=True)
class MultiGrader(_NamedGrader):
    """A formula over other graders' scores."""

    graders: "dict[str, SingleGrader]"
    calculate_output: str


TextGrader = StringCheck | TextSimilarity | ExactAnswer
SingleGrader = TextGrader | PythonGrader | RewardModelGrader
GraderSpec = SingleGrader | MultiGrader

_SINGLE: dict[str, type[SingleGrader]] = {
    "string_check": StringCheck,
    "text_similarity": TextSimilarity,
    "exact_answer": ExactAnswer,
    "python": PythonGrader,
    "reward_model": RewardModelGrader,
}
_NO_MODEL = (
    "asks another model, and the machines that train have no network to ask it over; use `python`"
    " with rules of your own, or a `reward_model` that you trained"
)
_REFUSED = {
    "score_model": _NO_MODEL,
    "label_model": _NO_MODEL,
    "endpoint": "calls your endpoint, and the machines that train have no network; use `python`",
}
_REFUSED_METRICS = {
    "cosine": "needs an embedding model, which the machines that train do not have",
    "meteor": "needs a dictionary of synonyms, which the machines that train do not have",
}


@dataclass(frozen=True, kw_only=True)
class _MultiShape(_NamedGrader):
    """A multi grader before its parts are parsed."""

    graders: dict[str, Any]
    calculate_output: str


def parse_grader(data: object, where: str = "grader") -> GraderSpec:
    """Parse a grader object; raise ValueError naming the member at fault.

    Sources of python graders are left to `check_sources`: compiling a hostile one takes minutes.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{where}: an object is needed, not {data!r:.80}")
    if data.get("type") == "multi":
        return _multi(data, where)
    return _single(data, where)


def sources(spec: GraderSpec, where: str) -> dict[str, str]:
    """Return the sources of the python graders, by the member that holds each."""
    if isinstance(spec, MultiGrader):
        nested = [sources(grader, f"{where}.graders.{n}") for n, grader in spec.graders.items()]
        return {member: source for members in nested for member, source in members.items()}
    return {f"{where}.source": spec.source} if isinstance(spec, PythonGrader) else {}


def template_fields(spec: GraderSpec) -> tuple[str, ...]:
    """Return the row members that the templates read, as dotted paths: `reference`, `a.b`."""
    return tuple(sorted({".".join(path) for path in _paths(spec)}))


def missing_fields(spec: GraderSpec, item: dict[str, Any]) -> tuple[str, ...]:
    """Return those of `template_fields` that a row lacks, or has as null."""
    return tuple(field for field in template_fields(spec) if not _has(item, field))


def reward_models(spec: GraderSpec) -> tuple[str, ...]:
    """Return the names of the reward models that the grader calls."""
    parts = spec.graders.values() if isinstance(spec, MultiGrader) else (spec,)
    return tuple(sorted({p.model for p in parts if isinstance(p, RewardModelGrader)}))


def _single(data: dict[str, Any], where: str) -> SingleGrader:
    kind = data.get("type")
    if "type" not in data:
        raise ValueError(f"{where}.type: missing")
    if isinstance(kind, str) and kind in _REFUSED:
        raise ValueError(f"{where}.type: `{kind}` {_REFUSED[kind]}")
    if not isinstance(kind, str) or kind not in _SINGLE:
        raise ValueError(f"{where}.type: {kind!r:.80} is none of {', '.join(_SINGLE)}, multi")
    metric = data.get("evaluation_metric")
    if kind == "text_similarity" and isinstance(metric, str) and metric in _REFUSED_METRICS:
        metrics = ", ".join(Metric)
        why = _REFUSED_METRICS[metric]
        raise ValueError(f"{where}.evaluation_metric: `{metric}` {why}; there are {metrics}")
    spec = decode(_SINGLE[kind], data, where)
    _check(spec, where)
    return spec


def _check(spec: SingleGrader, where: str) -> None:
    if isinstance(spec, TextGrader):
        parse_template(spec.input, f"{where}.input")
        parse_template(spec.reference, f"{where}.reference")


def _multi(data: dict[str, Any], where: str) -> MultiGrader:
    if isinstance(data.get("graders"), dict) and isinstance(data["graders"].get("type"), str):
        raise ValueError(
            f"{where}.graders: this is one grader; give it the name that the formula uses, such as"
            ' {"graders": {"right": {"type": ...}}}'
        )
    shape = decode(_MultiShape, data, where)
    if not 1 <= len(shape.graders) <= MOST_GRADERS:
        raise ValueError(f"{where}.graders: 1 to {MOST_GRADERS} are needed")
    graders = {
        name: _part(name, grader, f"{where}.graders.{name}")
        for name, grader in shape.graders.items()
    }
    spec = MultiGrader(
        type="multi", name=shape.name, graders=graders, calculate_output=shape.calculate_output
    )
    if len(reward_models(spec)) > 1:
        raise ValueError(f"{where}.graders: one reward model can be asked, not several")
    formula = shape.calculate_output
    check_formula(formula, frozenset(graders), f"{where}.calculate_output")
    return spec


def _part(name: str, data: object, where: str) -> SingleGrader:
    if not (name.isascii() and name.isidentifier()) or name in FUNCTIONS:
        raise ValueError(
            f"{where}: the formula cannot use that name; take letters, digits and `_`, and none"
            f" of {', '.join(FUNCTIONS)}"
        )
    if not isinstance(data, dict):
        raise ValueError(f"{where}: an object is needed, not {data!r:.80}")
    if data.get("type") == "multi":
        raise ValueError(f"{where}.type: a multi grader cannot be part of another one")
    return _single(data, where)


def _paths(spec: GraderSpec) -> Iterator[tuple[str, ...]]:
    if isinstance(spec, MultiGrader):
        for grader in spec.graders.values():
            yield from _paths(grader)
    elif isinstance(spec, TextGrader):
        for template in (spec.input, spec.reference):
            yield from item_paths(parse_template(template, "template"))


def _has(item: dict[str, Any], field: str) -> bool:
    try:
        find_member(item, tuple(field.split(".")))
    except KeyError:
        return False
    return True
