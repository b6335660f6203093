"""The order of a job's rows, where it is not a plain shuffle: what its options may be."""

from collections.abc import Iterator

from contract.choices import Method
from trainer.contract import Curriculum, Mix

LONGEST = 1_048_576  # tokens

Rule = tuple[str, object, bool, str]  # parameter, its value, whether it is fine, what would be


def rules(method: Method, mix: Mix | None, curriculum: Curriculum | None) -> Iterator[Rule]:
    """Every option held against its range, then against the others."""
    for name, given in (("mix", mix), ("curriculum", curriculum)):
        why = "left out with method reinforcement, which shuffles its prompts"
        yield f"training.{name}", "given", given is None or method != "reinforcement", why
    if mix is not None:
        at, tokens, share = "training.mix.", mix.threshold_tokens, mix.short_share
        yield f"{at}threshold_tokens", tokens, 1 <= tokens <= LONGEST, f"1 to {LONGEST}"
        yield f"{at}short_share", share, 0 < share < 1, "between 0 and 1"
    if curriculum is not None:
        at, until, share = "training.curriculum.", curriculum.until_step, curriculum.start_share
        yield f"{at}until_step", until, until >= 1, "1 or more"
        yield f"{at}start_share", share, 0 < share <= 1, "in (0, 1]"
        why = "left out with training.mix: rows have one order"
        yield "training.curriculum", "given", mix is None, why
