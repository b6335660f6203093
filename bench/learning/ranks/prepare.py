"""Inputs and run folder of one case: `python -m bench.learning.ranks.prepare FOLDER CASE [ROWS]`.

ROWS is a JSONL file, used unchanged. Without it the rows are generated.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.checkpoint.ranks.spec import plain_spec
from bench.learning.cases import CASES, LETTER, LearningCase
from bench.trainer.ranks.prepare import input_file, write_run
from trainer import tiny
from trainer.contract import Dpo, Reinforcement, RunSpec
from trainer.sample_data import tiny_chats

ROWS = 600
WRITE = {
    "chats": tiny_chats.write_samples,
    "preferences": tiny_chats.write_preferences,
    "prompts": tiny_chats.write_prompts,
}
GRADER = {
    "type": "python",
    "name": "letters",
    "source": (
        "def grade(sample, item):\n"
        "    text = sample['output_text']\n"
        f"    return text.count('{LETTER}') / max(len(text), 1)\n"
    ),
}


def main() -> None:
    """Write model, rows and run folder, in the layout of the supervisor."""
    folder, name, *rows = sys.argv[1:]
    root = Path(folder)
    case = CASES[name]
    tiny.build(root / "models" / "tiny")
    data = root / "files" / "train.jsonl"
    data.parent.mkdir()
    if rows:
        shutil.copyfile(rows[0], data)
    else:
        WRITE[case.rows](data, ROWS, seed=1)
    write_run(root, "run", spec(root, case))


def spec(root: Path, case: LearningCase) -> RunSpec:
    """Return the run spec of the case."""
    base_spec = plain_spec(
        model=[input_file(root, path) for path in sorted((root / "models" / "tiny").iterdir())],
        rows=input_file(root, root / "files" / "train.jsonl"),
        method=case.method,
        total_steps=100,
        global_batch=8,
        micro_batch=8,
        max_seq_len=256,
        learning_rate=2e-3,
        warmup_steps=4,
        precision="fp32",
        zero_stage=1,
    )
    return replace(base_spec, **_spec_members(case.spec))


def _spec_members(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run spec members, with nested members converted to messages."""
    converted = dict(members)
    if "reinforcement" in converted:
        converted["reinforcement"] = Reinforcement(
            grader=json.dumps(GRADER), **converted["reinforcement"]
        )
    if "dpo" in converted:
        converted["dpo"] = Dpo(**converted["dpo"])
    return converted


if __name__ == "__main__":
    main()
