"""Check the rules that the bounds of ``contract`` cannot express, in order, one row each."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from contract.methods import METHODS
from service.domain.errors import InvalidRequest
from service.domain.models.architecture import Architecture
from service.domain.training.methods import models_trained
from trainer.contract import Dpo, Ranked, Reinforcement

if TYPE_CHECKING:
    from service.domain.training.recipe import Training

MIN_CHUNK = 16  # positions; less is slow and saves nothing
_NO_REINFORCEMENT = Reinforcement(algorithm="", grader="", answers=2, max_answer_tokens=1)


class RuleInputs(NamedTuple):
    """What the rules are about."""

    t: "Training"
    a: Architecture
    longest: int  # tokens of a sequence
    answer_tokens: int  # the most of an answer
    stages: range  # of ZeRO, that go with the other options
    stages_rule: str

    @property
    def learns(self) -> bool:
        """Return whether the method is reinforcement learning."""
        return self.t.reinforcement is not None

    @property
    def rl(self) -> Reinforcement:
        """Return the reinforcement options; harmless ones for other methods."""
        return self.t.reinforcement or _NO_REINFORCEMENT

    @property
    def dpo(self) -> Dpo:
        """Return the DPO options; harmless ones for other methods."""
        return self.t.dpo or Dpo(beta=1)

    @property
    def ranked(self) -> Ranked:
        """Return the ranking options; defaults for other methods."""
        return self.t.ranked or Ranked()


class RequestRule(NamedTuple):
    """A rule: ``param`` is ``value`` but must be ``must``, both formatted with the facts ``f``."""

    param: str
    value: str
    is_broken: Callable[[RuleInputs], object]
    must: str


_FROZEN = "left out with an adapter, which freezes the whole base model"
_SHUFFLED = "left out with method reinforcement, which shuffles its prompts"
_KEPT_NEAR = "left out, or beta above 0 to begin with"
_RL = "method.reinforcement."

RULES = (
    RequestRule(
        "method.type",
        "{f.t.method}",
        lambda f: f.a.encoder and f.t.method != "classification",
        "classification with this base model, which writes no text",
    ),
    RequestRule(
        "training.adapter",
        "lora",
        lambda f: f.t.lora and not f.a.adapts,
        "left out with this base model: its matrices are transposed (Conv1D)",
    ),
    RequestRule(
        "training.loss_chunk",
        "{f.t.loss_chunk}",
        lambda f: f.t.loss_chunk and not f.a.packs,
        "left out with this base model: it may change its logits after the head",
    ),
    RequestRule(
        _RL + "algorithm",
        "{f.rl.algorithm}",
        lambda f: not f.a.critic and models_trained(f.rl) > 1,
        "grpo or rloo with this base model: transformers has no critic of its family",
    ),
    RequestRule(
        "training.max_seq_len",
        "{f.t.max_seq_len}",
        lambda f: f.longest > f.a.max_positions,
        "2 to {f.a.max_positions}, the maximum of the base model",
    ),
    RequestRule(
        "training.zero_stage",
        "{f.t.zero_stage}",
        lambda f: f.t.zero_stage is not None and f.t.zero_stage not in f.stages,
        "{f.stages_rule}",
    ),
    RequestRule(
        "training.packing",
        "true",
        lambda f: f.t.packing and METHODS[f.t.method].head,
        "left out with method {f.t.method}, which reads a score at the end of each row",
    ),
    RequestRule(
        "training.packing",
        "true",
        lambda f: f.t.packing and f.learns,
        "left out with method reinforcement, whose answers have no length yet",
    ),
    RequestRule(
        "training.packing",
        "true",
        lambda f: f.t.packing and not f.a.packs,
        "left out with this base model: its attention might mix sequences side by side",
    ),
    RequestRule(
        "training.train_last_n_layers",
        "{f.t.train_last_n_layers}",
        lambda f: (f.t.train_last_n_layers or 1) > f.a.layers,
        "1 to {f.a.layers}, the base model's layers",
    ),
    RequestRule(
        "training.train_last_n_layers",
        "{f.t.train_last_n_layers}",
        lambda f: f.t.train_last_n_layers and f.t.lora,
        _FROZEN,
    ),
    RequestRule(
        "training.train_embeddings",
        "false",
        lambda f: f.t.lora and not f.t.train_embeddings,
        _FROZEN,
    ),
    RequestRule(
        "training.loss_chunk",
        "{f.t.loss_chunk}",
        lambda f: 0 < f.t.loss_chunk < MIN_CHUNK,
        f"0, or {MIN_CHUNK} or more",
    ),
    RequestRule(
        "training.offload",
        "{f.t.offload}",
        lambda f: f.t.offload == "parameters" and not f.stages,
        "optimizer, or left out: offloaded weights need ZeRO stage 3",
    ),
    RequestRule(
        "training.loss_chunk",
        "{f.t.loss_chunk}",
        lambda f: f.t.loss_chunk and f.t.method != "supervised",
        "left out: only the supervised method has it",
    ),
    RequestRule(
        "training.on_spike",
        "{f.t.spike_guard.on_spike}",
        lambda f: f.t.spike_guard and f.learns,
        "left out with method reinforcement, whose loss is about 0 and has no spikes",
    ),
    RequestRule(
        "training.zero_plus_plus",
        "{f.t.zero_plus_plus}",
        lambda f: f.t.zero_plus_plus and f.t.zero_stage != 3,
        "left out unless training.zero_stage is 3",
    ),
    RequestRule(
        "training.rollout_offload",
        "true",
        lambda f: f.t.rollout_offload and not f.learns,
        "left out unless the method is reinforcement",
    ),
    RequestRule(
        "method.dpo.label_smoothing",
        "{f.dpo.label_smoothing}",
        lambda f: f.dpo.loss == "ipo" and f.dpo.label_smoothing,
        "left out with loss ipo, which has none",
    ),
    RequestRule(
        "method.reward.margin_end",
        "{f.ranked.margin_end}",
        lambda f: max(f.ranked.margin_start, f.ranked.margin_end) <= 0,
        "above 0, or no answer is ever wrong",
    ),
    RequestRule("training.mix", "given", lambda f: f.t.mix and f.learns, _SHUFFLED),
    RequestRule("training.curriculum", "given", lambda f: f.t.curriculum and f.learns, _SHUFFLED),
    RequestRule(
        "training.curriculum",
        "given",
        lambda f: f.t.mix and f.t.curriculum,
        "left out with training.mix: rows have one order",
    ),
    RequestRule(
        _RL + "answers",
        "{f.rl.answers}",
        lambda f: f.rl.answers < 2 and f.rl.algorithm != "ppo",
        "2 to 64, as {f.rl.algorithm} compares the answers to a prompt",
    ),
    RequestRule(
        _RL + "max_answer_tokens",
        "{f.answer_tokens}",
        lambda f: f.learns and not 1 <= f.answer_tokens < f.longest,
        "below {f.longest}: max_seq_len is {f.longest}, and the prompt has to fit as well",
    ),
    RequestRule(
        _RL + "beta_end",
        "{f.rl.beta_end}",
        lambda f: f.rl.beta_end is not None and f.rl.beta <= 0,
        _KEPT_NEAR,
    ),
    RequestRule(
        _RL + "beta_end",
        "{f.rl.beta_end}",
        lambda f: f.rl.beta_end is not None and f.rl.kl_target is not None,
        "left out beside kl_target, which moves beta",
    ),
    RequestRule(
        _RL + "kl_target",
        "{f.rl.kl_target}",
        lambda f: f.rl.kl_target is not None and f.rl.beta <= 0,
        _KEPT_NEAR,
    ),
)


def refuse_broken(facts: RuleInputs) -> None:
    """Raise InvalidRequest for the first rule that is broken."""
    for rule in RULES:
        if rule.is_broken(facts):
            value, must = rule.value.format(f=facts), rule.must.format(f=facts)
            raise InvalidRequest(
                f"{rule.param} is {value}, but it must be {must}.", param=rule.param
            )
