"""Actor and critic in one module, so that one engine trains both.

Saving, sharding, offloading and resuming then cover both without extra code.
"""

from typing import Any

import torch

ACTOR, CRITIC = "actor.", "critic."  # what the names of their weights begin with


class ActorCritic(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Called like the actor; ``with_values`` adds the critic's values to the output."""

    def __init__(self, actor: Any, critic: Any) -> None:  # noqa: ANN401 - transformers is untyped
        super().__init__()
        self.actor, self.critic = actor, critic

    def forward(self, *, with_values: bool = False, **inputs: Any) -> Any:  # noqa: ANN401
        """Return the actor's output; ``token_values`` [rows, positions] are in fp32."""
        output = self.actor(**inputs)
        if with_values:
            output["token_values"] = self.critic(**inputs).logits[:, :, 0].float()
        return output


def actor_of(module: Any) -> Any:  # noqa: ANN401
    """Return the language model of a trained module."""
    return module.actor if isinstance(module, ActorCritic) else module
