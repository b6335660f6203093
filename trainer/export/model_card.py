"""Write the model card, `README.md`, in the format of Hugging Face's hub.

It is filled from the report and the run spec alone. Nothing unmeasured is in it: only its user
knows what the model is good for.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub.repocard import metadata_load
from huggingface_hub.repocard_data import ModelCardData

from trainer.contract import RunSpec
from trainer.export.companion_files import BASE_CARD, CARD
from trainer.export.report import REPORT, ReportedFile, ReportedValidation, TrainingReport
from trainer.export.training_summary import training_rows
from trainer.model.sequence_head import has_head
from trainer.verify.result import OFF, VERIFIED, Verification

LICENSE = ("license", "license_name", "license_link")  # members of a card's header
TAGS = {"supervised": "sft", "reward": "reward-model", "classification": "text-classification"}
_CHAT = """import transformers

folder = "."  # where this file is
model = transformers.AutoModelForCausalLM.from_pretrained(folder)
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
chat = [{"role": "user", "content": "Hello!"}]
inputs = tokenizer.apply_chat_template(
    chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
)
answer = model.generate(**inputs, max_new_tokens=200)[0, inputs["input_ids"].shape[1] :]
print(tokenizer.decode(answer, skip_special_tokens=True))"""
_REWARD = """import transformers

folder = "."  # where this file is
model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
chat = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Good day."}]
inputs = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)
print(model(**inputs).logits[0, 0])  # higher is better"""
_CLASSIFY = """import transformers

folder = "."  # where this file is
classify = transformers.pipeline("text-classification", folder)
print(classify("A text."))"""


def write_card(report: TrainingReport, spec: RunSpec, folder: Path) -> None:
    """Write the card into the model's folder; `copy_companions` has kept the base's card."""
    parts = (
        _header(spec, folder),
        f"# {_first_base(report.base_model.name).rpartition('/')[2]}, fine-tuned\n",
        _introduction(report, spec, folder),
        "## How it was trained\n",
        _table(("", ""), training_rows(report, spec)),
        "## Data\n",
        _table(("", "file", "rows", "SHA-256"), _data(report)),
        "## Results\n",
        _results(report),
        *([_verified(verification)] if (verification := report.verification) else []),
        "## How to load it\n",
        f"```python\n{_code(spec)}\n```\n",
        "## Limits\n",
        "".join(f"- {limit}\n" for limit in _limits(report, spec)),
    )
    (folder / CARD).write_text("\n".join(parts), encoding="utf-8")


def _header(spec: RunSpec, folder: Path) -> str:
    kind = "qlora" if spec.lora and spec.lora.quantized else "lora" if spec.lora else None
    algorithm = spec.reinforcement.algorithm if spec.reinforcement else None
    method = algorithm or TAGS.get(spec.method, spec.method)
    data = ModelCardData(
        base_model=_first_base(spec.base_model.name),
        library_name="transformers",
        pipeline_tag="text-classification" if has_head(spec) else "text-generation",
        tags=[tag for tag in ("rekindle", method, kind) if tag],
        ignore_metadata_errors=True,
        **_license(folder / BASE_CARD),
    )
    return f"---\n{data.to_yaml()}\n---\n"


def _first_base(name: str) -> str:
    """Return the first base model of a chain of jobs: of `ft:{base}:{project}:{suffix}:{job}`."""
    return name.split(":")[1] if name.startswith("ft:") else name


def _license(card: Path) -> dict[str, Any]:
    """Return the license members of the base model's card; empty where there are none."""
    if not card.exists():
        return {}
    try:
        header = metadata_load(card) or {}
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return {name: header[name] for name in LICENSE if name in header}


def _introduction(report: TrainingReport, spec: RunSpec, folder: Path) -> str:
    name, first = report.base_model.name, _first_base(report.base_model.name)
    base = f"[{first}](https://huggingface.co/{first})" if "/" in first else first
    if name != first:
        base = f"The model of an earlier job, based on {base} (`{name}`)"
    text = f"{base}, revision `{report.base_model.revision}`, fine-tuned with Rekindle. "
    text += f"`{REPORT}` has all of this card, and more, for programs."
    if (folder / BASE_CARD).exists():
        text += f" The card of the base model is `{BASE_CARD}`."
    if spec.lora is not None:
        text += " The adapters are merged into these weights; `adapter/` has them alone."
    return f"{text}\n"


def _data(report: TrainingReport) -> Iterable[tuple[str, ...]]:
    for name, file in (("training", report.training_file), ("validation", report.validation_file)):
        if file is not None:
            yield _file(name, file)


def _file(name: str, file: ReportedFile) -> tuple[str, ...]:
    return name, f"`{file.name}`", f"{file.rows:,}", f"`{file.sha256}`"


def _results(report: TrainingReport) -> str:
    if (validation := report.validation) is None:
        return "Not measured: the job had no validation file.\n"
    table = _table(("on the validation file", "before", "after"), _measures(validation))
    if validation.measure == "reward":
        return (
            f"{table}\nThe reward is the mean grade of the most likely answers. Higher is better.\n"
        )
    return f"{table}\nLower is better.\n"


def _verified(verification: Verification) -> str:
    """Return the result of the verification in a sentence or two."""
    if verification.status == OFF:
        return "These files were not verified: the job switched verification off.\n"
    if verification.status != VERIFIED:
        return f"These files were not verified: {verification.reason}.\n"
    base = (
        ""
        if verification.base_loss is None
        else f" The base model's is {verification.base_loss:.4f}."
    )
    return (
        f"A new process loaded these files with {verification.loaded_with} and scored "
        f"{verification.sequences} rows of `{verification.file}`. The {verification.measure} is "
        f"{_loss_text(verification.loss)}; in the trainer it was "
        f"{_loss_text(verification.trainer_loss)}.{base}\n"
    )


def _loss_text(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4f}"


def _measures(validation: ReportedValidation) -> Iterable[tuple[str, ...]]:
    yield validation.measure, _number(validation.before), _number(validation.after)
    if validation.perplexity_after is not None:
        yield (
            "perplexity",
            _number(validation.perplexity_before),
            _number(validation.perplexity_after),
        )


def _code(spec: RunSpec) -> str:
    if spec.method == "classification":
        return _CLASSIFY
    return _REWARD if has_head(spec) else _CHAT


def _limits(report: TrainingReport, spec: RunSpec) -> Iterable[str]:
    yield f"Rows longer than {spec.max_seq_len:,} tokens were cut to that length."
    if report.validation is not None:
        yield "Results come from one validation file; nothing else was measured."
    if report.averaged:
        yield "The weights are an average over the steps; the results are those of the last step."
    if spec.is_quantized:
        yield "The results are those of the base in 4 bits with adapters, not of this model."
    yield "The base model's license, limits and risks apply to this model too."


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (head, ("---",) * len(head), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4g}"
