"""How good the model's answers are to the prompts of the validation file."""

from collections.abc import Sequence

from trainer.data.order import cursors
from trainer.graders.answer import Answer
from trainer.methods.scores import Method
from trainer.rollout.collect import AT_ONCE, Collector
from trainer.state import Identity
from trainer.sums import over_ranks


class Grades:
    """Minus the mean grade of the likeliest answer to each prompt."""

    def __init__(self, collector: Collector, identity: Identity) -> None:
        self._collector, self._me = collector, identity

    def __call__(self, method: Method) -> float | None:  # noqa: ARG002 - no loss is asked for
        """Minus the mean over all prompts."""
        total, count = 0.0, 0.0
        for rows in self._groups():
            if self._collector.stop():
                return None
            grades = self._grades(rows)
            total, count = total + sum(grades), count + len(grades)
        total, count = over_ranks(total, count, device=self._collector.engine.device)
        return -total / max(count, 1)

    def _groups(self) -> list[list[int]]:
        """This rank's rows; as many groups on every rank."""
        rows = len(self._collector.prompts)
        return cursors(0, rows, AT_ONCE, self._me.world_size, self._me.rank)

    def _grades(self, rows: Sequence[int]) -> list[float]:
        collector = self._collector
        prompts = [collector.prompts[row] for row in rows]
        found = collector.sampler.answers([prompt.ids for prompt in prompts], None)
        texts = [collector.tokenizer.decode(ids, skip_special_tokens=True) for ids in found]
        asked = [Answer(text, p.item, p.chat) for text, p in zip(texts, prompts, strict=True)]
        return [grade.score for grade in collector.grader.grade(asked)]
