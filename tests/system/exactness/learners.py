"""Run specs whose rows are rankings or labelled texts, or come in an order of their own."""

import json
from dataclasses import replace
from pathlib import Path

from tests.system.exactness.worlds import LORA, by_preferences, described, make_spec
from trainer.contract import Curriculum, Mix, Ranked, RunSpec
from trainer.sample_data.tiny_chats import chats, write_rankings

MIX = Mix(threshold_tokens=60, short_share=0.7)
EASY_FIRST = Curriculum(until_step=7, start_share=0.2)


def learners(inputs: Path) -> dict[str, RunSpec]:
    """By name; each beside a matrix of which it takes another way through the trainer."""
    spec, ranked, labelled = make_spec(inputs), by_rankings(inputs), by_labels(inputs)
    return {
        "mixed-full-zero2-bf16": replace(spec, mix=MIX),
        "mixed-lora-zero3-fp32-dpo": replace(
            by_preferences(inputs), mix=MIX, lora=LORA, zero_stage=3, precision="fp32"
        ),
        "curriculum-full-zero3-bf16": replace(spec, curriculum=EASY_FIRST, zero_stage=3),
        "curriculum-lora-zero1-fp32-packed": replace(
            spec, curriculum=EASY_FIRST, lora=LORA, zero_stage=1, precision="fp32", packing=True
        ),
        "ranked-full-zero2-bf16": ranked,
        "ranked-lora-zero3-fp32": replace(ranked, lora=LORA, zero_stage=3, precision="fp32"),
        "classification-full-zero3-bf16": replace(labelled, zero_stage=3),
        "classification-lora-zero1-fp32": replace(
            labelled, lora=LORA, zero_stage=1, precision="fp32"
        ),
    }


def ordered(calm: Path) -> dict[str, RunSpec]:
    """For another number of ranks at each resume."""
    spec = replace(make_spec(calm), total_steps=24, zero_stage=2, precision="fp32")
    later = replace(EASY_FIRST, until_step=15)
    return {
        "chain-mixed": replace(spec, mix=MIX),
        "chain-curriculum": replace(spec, curriculum=later),
    }


def by_rankings(inputs: Path) -> RunSpec:
    """Return a run spec for a reward model with two or three ranked answers to each prompt."""
    path = inputs / "files" / "ranked.jsonl"
    write_rankings(path, rows=40, seed=1)
    file = described(inputs, path)
    spec = replace(make_spec(inputs), method="reward", ranked=Ranked(), answers_per_row=3)
    return replace(spec, training_file=file, validation_file=file)


def by_labels(inputs: Path) -> RunSpec:
    """Return a run spec that classifies whether a text is about money or something else."""
    path = inputs / "files" / "labelled.jsonl"
    with path.open("w") as lines:
        for chat in chats(40, seed=1):
            text = chat[-1]["content"]
            label = "money" if "dollars" in text else "other"
            lines.write(json.dumps({"text": text, "label": label}) + "\n")
    file = described(inputs, path)
    spec = replace(make_spec(inputs), method="classification", labels=("money", "other"))
    return replace(spec, training_file=file, validation_file=file)
