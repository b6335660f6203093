"""Examples of requests, for the API document."""

from fastapi.openapi.models import Example

_HYPERPARAMETERS = {"n_epochs": 3, "batch_size": "auto"}
_BASE = {"model": "Qwen/Qwen3-8B", "training_file": "file-01k..."}
_LIMITS = {"budget": {"amount": "50"}, "deadline": 1790000000}
_GRADER = {
    "type": "string_check",
    "name": "exact",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}


def _example(summary: str, **members: object) -> Example:
    return {"summary": summary, "value": _BASE | members}


JOB_REQUESTS: dict[str, Example] = {
    "supervised": _example(
        "Supervised, LoRA, with a budget and a deadline",
        method={"type": "supervised", "supervised": {"hyperparameters": _HYPERPARAMETERS}},
        training={"adapter": {"type": "lora", "r": 16}},
        infrastructure=_LIMITS,
    ),
    "dpo": _example(
        "Direct preference optimization",
        method={"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.1}}},
    ),
    "reward": _example("Reward model", method={"type": "reward"}),
    "classification": _example("Classification", method={"type": "classification"}),
    "reinforcement": _example(
        "Reinforcement learning from graded answers",
        method={"type": "reinforcement", "reinforcement": {"grader": _GRADER}},
    ),
}
