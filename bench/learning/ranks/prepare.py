"""`python -m bench.learning.ranks.prepare FOLDER CASE [ROWS.jsonl]`: inputs and a run folder.

Without a file of rows they are generated; with one, it is taken as it is.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from bench.learning.cases import CASES, LETTER, Case
from trainer import samples, tiny
from trainer.contract import BaseModel, Generation, InputFile, Member, RunSpec
from trainer.rundir import RunDir

SPEC_SHA256 = "5" * 64
ROWS = 600
WRITE = {
    "chats": samples.write_samples,
    "preferences": samples.write_preferences,
    "prompts": samples.write_prompts,
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
    """Leave everything as a supervisor does."""
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
    rundir = RunDir(root / "run")
    rundir.root.mkdir()
    (rundir.root / "inputs").symlink_to(root.resolve())
    rundir.run_spec.write_text(spec(root, case).to_json())
    rundir.generation.write_text(_generation().to_json())
    rundir.ready.touch()


def spec(root: Path, case: Case) -> RunSpec:
    """The case as the trainer is told it."""
    files = tuple(_file(root, path) for path in sorted((root / "models" / "tiny").iterdir()))
    usual = RunSpec(
        version=1,
        job_id="ftjob-bench",
        seed=1,
        method=case.method,
        base_model=BaseModel(name="tiny", revision="0", files=files),
        training_file=_file(root, root / "files" / "train.jsonl"),
        validation_file=None,
        total_steps=100,
        global_batch=8,
        micro_batch=8,
        max_seq_len=256,
        learning_rate=2e-3,
        warmup_steps=4,
        min_lr_ratio=0.1,
        weight_decay=0.0,
        max_grad_norm=1.0,
        precision="fp32",
        zero_stage=1,
        lora=None,
        gradient_checkpointing=False,
        checkpoint_seconds=1e9,
        eval_steps=0,
        nodes=1,
        processes_per_node=1,
    )
    return RunSpec.from_dict(json.loads(usual.to_json()) | _told(case.spec))


def _told(members: Any) -> dict[str, Any]:  # noqa: ANN401
    told = dict(members)
    if "reinforcement" in told:
        told["reinforcement"] = {"grader": json.dumps(GRADER), **_DEFAULTS, **told["reinforcement"]}
    if "dpo" in told:
        told["dpo"] = {"loss": "sigmoid", "label_smoothing": 0.0, **told["dpo"]}
    return told


_DEFAULTS = {
    "temperature": 1.0,
    "top_p": 1.0,
    "beta": 0.0,
    "beta_end": None,
    "kl_target": None,
    "clip": 0.2,
    "steps_per_rollout": 1,
    "gae_lambda": 0.95,
    "replay_share": 0.0,
    "replay_capacity": 50_000,
    "replay_max_age": 50,
}


def _generation() -> Generation:
    return Generation(
        number=1,
        job_id="ftjob-bench",
        attempt_id="att-bench",
        members=(Member(node_id="node-1", vm_id="vm-1", address="127.0.0.1", node_rank=0),),
        processes_per_node=1,
        master_address="127.0.0.1",
        master_port=0,
        checkpoint=None,
        run_spec_sha256=SPEC_SHA256,
    )


def _file(root: Path, path: Path) -> InputFile:
    name = str(path.relative_to(root))
    return InputFile(path=name, size=path.stat().st_size, sha256="0" * 64)


if __name__ == "__main__":
    main()
