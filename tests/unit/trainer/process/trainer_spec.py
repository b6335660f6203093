"""A run spec and a rank for unit tests."""

from trainer.contract import InputFile, PinnedModel, Reinforcement, RunSpec
from trainer.state import RankIdentity

GRADED = Reinforcement(
    algorithm="grpo",
    grader='{"type":"string_check","name":"same","input":"{{sample.output_text}}",'
    '"reference":"{{item.answer}}","operation":"eq"}',
    answers=4,
    max_answer_tokens=8,
)
FILE = InputFile(path="files/train.jsonl", size=1, sha256="0" * 64)
SPEC = RunSpec(
    version=1,
    job_id="ftjob-1",
    seed=7,
    method="supervised",
    base_model=PinnedModel(name="tiny", revision="0", files=(FILE,)),
    training_file=FILE,
    validation_file=None,
    total_steps=12,
    global_batch=16,
    micro_batch=2,
    max_seq_len=128,
    learning_rate=1e-3,
    warmup_steps=2,
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
    processes_per_node=2,
)
ME = RankIdentity(
    rank=0, local_rank=0, world_size=1, generation=1, run_spec_sha256="5" * 64, nonce="0" * 8
)
