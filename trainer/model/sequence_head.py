"""New heads on base models, for methods that score whole sequences."""

from typing import Any

from rendering.tokenizer import HEAD_METHODS
from trainer.contract import RunSpec

METHODS = HEAD_METHODS
MODULES = ("classifier", "score")  # trained whole; peft spares those of sequences by itself


def has_head(spec: RunSpec) -> bool:
    """Return whether the model is a sequence classifier for transformers and peft."""
    return spec.method in METHODS


def head_settings(spec: RunSpec, pad_id: int) -> dict[str, Any]:
    """Return the classifier's additions to the base model's configuration.

    A decoder's head reads the last token that is not padding, so it needs the pad token.
    """
    if spec.method == "reward":
        return {"num_labels": 1, "pad_token_id": pad_id}
    return {
        "num_labels": len(spec.labels),
        "id2label": dict(enumerate(spec.labels)),
        "label2id": {name: number for number, name in enumerate(spec.labels)},
        "pad_token_id": pad_id,
    }
