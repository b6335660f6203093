"""What is trained, by which method, at which ZeRO stage, in which precision: all of it, crossed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.system.exactness.savers import QLORA
from tests.system.exactness.worlds import LORA, by_grades, by_preferences, make_spec
from trainer.contract import RunSpec

WHAT = {"full": None, "lora": LORA, "qlora": QLORA}
METHODS = ("sft", "reward", "dpo", "orpo", "ppo", "grpo")  # that go with each of them
OFF_POLICY = {"beta_end": 0.01, "steps_per_rollout": 2, "replay_share": 0.2}


def by_method(inputs: Path) -> dict[str, RunSpec]:
    """By name: the methods, and what else goes with each stage and precision."""
    return {
        "sft": make_spec(inputs),
        "packed": replace(make_spec(inputs), packing=True),
        "dpo": by_preferences(inputs),
        "orpo": replace(
            by_preferences(inputs, dpo=None), method="orpo", method_options='{"beta": 0.1}'
        ),
        "reward": by_preferences(inputs, dpo=None),
        "grpo": by_grades(inputs, "grpo"),
        "rloo": by_grades(inputs, "rloo", kl_target=1.0),
        "ppo": by_grades(inputs, "ppo", **OFF_POLICY),
        "averaged": replace(make_spec(inputs), ema_decay=0.9),
    }


def pairings(spec: RunSpec, trained: Sequence[str]) -> dict[str, RunSpec]:
    """Every pairing of what is trained, ZeRO stage and precision, whether it can be or not."""
    return {
        f"{name}-zero{stage}-{precision}": replace(
            spec, lora=WHAT[name], zero_stage=stage, precision=precision
        )
        for name in trained
        for precision in ("bf16", "fp32")
        for stage in range(4)
    }


def matrix(spec: RunSpec, trained: Sequence[str] = ("full", "lora")) -> dict[str, RunSpec]:
    """Those that can be."""
    return {name: s for name, s in pairings(spec, trained).items() if not impossible(s)}


def impossible(spec: RunSpec) -> bool:
    """No fp32 masters at stage 0, and ZeRO-3 shares no 4 bits out."""
    if spec.lora is not None and spec.lora.quantized and spec.zero_stage == 3:
        return True
    return spec.precision != "fp32" and spec.zero_stage == 0


def refusal(spec: RunSpec) -> dict[str, object]:
    """Return whether the trainer refuses an impossible run spec, and why."""
    from trainer.engine.deepspeed_engine import build_config  # noqa: PLC0415 - slow, and other cases need none
    from trainer.process.non_retryable import NonRetryableError  # noqa: PLC0415

    try:
        build_config(spec, 2)
    except NonRetryableError as e:
        return {"refused": True, "why": str(e)}
    return {"refused": False}
