"""Run spec with the required members; no training uses it here."""

from trainer.contract import BaseModel, InputFile, RunSpec

_FILE = InputFile(path="files/train.jsonl", size=1, sha256="0" * 64)
SPEC = RunSpec(
    version=1,
    job_id="bench",
    seed=1,
    method="supervised",
    base_model=BaseModel(name="bench", revision="0", files=(_FILE,)),
    training_file=_FILE,
    validation_file=None,
    total_steps=1,
    global_batch=1,
    micro_batch=1,
    max_seq_len=1,
    learning_rate=1e-3,
    warmup_steps=0,
    min_lr_ratio=0.1,
    weight_decay=0.1,
    max_grad_norm=1.0,
    precision="bf16",
    zero_stage=2,
    lora=None,
    gradient_checkpointing=False,
    checkpoint_seconds=600.0,
    eval_steps=0,
    nodes=1,
    processes_per_node=1,
)
