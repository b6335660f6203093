"""Options that `rekindle submit` no longer has, and the --set that replaces each."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from rekindle.cli.submit.options import complete_value, method_help

if TYPE_CHECKING:
    from typer._click import Context
    from typer._click.formatting import HelpFormatter

# V stands for the option's value; a flag has none.
REMOVED = {
    "--beta": "method.dpo.hyperparameters.beta=V",
    "--dpo-loss": "method.dpo.loss=V",
    "--label-smoothing": "method.dpo.label_smoothing=V",
    "--ema-decay": "training.ema_decay=V",
    "--no-verify": "training.verify=false",
    "--checkpoint-seconds": "training.checkpoint_seconds=V",
    "--keep-checkpoints": "training.keep_checkpoints=V",
    "--milestone-every": "training.milestone_every_steps=V",
    "--packing": "training.packing=true",
    "--lora-alpha": "training.adapter.alpha=V",
    "--lora-dropout": "training.adapter.dropout=V",
    "--train-last-layers": "training.train_last_n_layers=V",
    "--freeze-embeddings": "training.train_embeddings=false",
    "--loss-chunk": "training.loss_chunk=V",
    "--offload-optimizer": "training.offload=optimizer",
    "--offload-parameters": "training.offload=parameters",
    "--min-nodes": "infrastructure.elastic.min_nodes=V",
    "--on-exhausted": "infrastructure.budget.on_exhausted=V",
    "--on-deadline-risk": "infrastructure.on_deadline_risk=V",
    "--max-price": "infrastructure.max_price.amount=V",
    "--reward-loss": "method.reward.loss=V",
    "--margin-start": "method.reward.margin_start=V",
    "--margin-end": "method.reward.margin_end=V",
    "--algorithm": "method.reinforcement.algorithm=V",
    "--answers": "method.reinforcement.answers=V",
    "--max-answer-tokens": "method.reinforcement.max_answer_tokens=V",
    "--temperature": "method.reinforcement.temperature=V",
    "--mix-threshold": "training.mix.threshold_tokens=V",
    "--mix-short-share": "training.mix.short_share=V",
    "--curriculum-steps": "training.curriculum.until_step=V",
    "--precision": "training.precision=V",
    "--on-spike": "training.on_spike=V",
    "--compile": "training.compiled=true",
    "--fused-kernels": "training.fused_kernels=true",
    "--zero-plus-plus": "training.zero_stage=3 --set 'training.zero_plus_plus=[V]'",
    "--rollout-offload": "training.rollout_offload=true",
    "--scale-learning-rate": "training.learning_rate_scaling.rule=V",
    "--base-batch": "training.learning_rate_scaling.base_batch=V",
}
_ALSO = {
    "--beta": "; with reinforcement, --set method.reinforcement.beta={value}",
    "--lora-alpha": " beside --lora",
    "--lora-dropout": " beside --lora",
}


class SubmitCommand(TyperCommand):
    """The `submit` command, with hints for removed options."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Parse arguments; fail at the first removed option with its replacement."""
        arguments = list(args)
        options = {name for param in self.get_params(ctx) for name in param.opts}
        if not ctx.resilient_parsing:
            for index, argument in enumerate(arguments):
                option = argument.partition("=")[0]
                if argument == "--":
                    break
                if option in REMOVED and option not in options:
                    ctx.fail(replacement_of(arguments[index:]))
        return super().parse_args(ctx, args)

    def format_help(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Show help; import the method descriptors only then."""
        for param in self.params:
            if "--method" in param.opts:
                param.help = f"{method_help()}; default: supervised."  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: "Context", incomplete: str) -> list[Any]:
        """Complete option names, and values after `--set MEMBER =`."""
        from typer._click.shell_completion import CompletionItem

        values = complete_value(ctx.params)
        if not values:
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(v, help=h) for v, h in values if v.startswith(incomplete)]


def replacement_of(arguments: Sequence[str]) -> str:
    """Return the replacement of a removed option, which is the first of these words."""
    option, has_value, value = arguments[0].partition("=")
    setting = REMOVED[option]
    if not has_value:
        following = arguments[1] if len(arguments) > 1 else ""
        value = following if following and not following.startswith("--") else "VALUE"
    value = shlex.quote(value)
    hint = _ALSO.get(option, "").format(value=value)
    return f"{option} was replaced by --set {setting.replace('V', value)}{hint}."
