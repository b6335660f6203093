"""Members of ``training`` that say in which order rows come. Strict."""

from pydantic import Field

from service.api.hyperparameters import Strict
from trainer.contract import Curriculum, Mix


class MixRequest(Strict):
    """Short and long rows in one proportion all along."""

    threshold_tokens: int = Field(default=512, ge=1)
    short_share: float = Field(default=0.7, gt=0, lt=1)

    def resolved(self) -> Mix:
        """As the trainer gets it."""
        return Mix(threshold_tokens=self.threshold_tokens, short_share=self.short_share)


class CurriculumRequest(Strict):
    """Easy rows first."""

    until_step: int = Field(ge=1)
    start_share: float = Field(default=0.2, gt=0, le=1)

    def resolved(self) -> Curriculum:
        """As the trainer gets it."""
        return Curriculum(until_step=self.until_step, start_share=self.start_share)
