"""Two models that are trained as one: the actor, and a critic that says what a prefix is worth.

One engine holds both, so whatever saves, shards, offloads or resumes a model does it for them.
"""

from typing import Any

import torch

ACTOR, CRITIC = "actor.", "critic."  # what the names of their weights begin with


class ActorCritic(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Called like the actor; with ``with_values`` the answer has the critic's values as well."""

    def __init__(self, actor: Any, critic: Any) -> None:  # noqa: ANN401 - transformers is untyped
        super().__init__()
        self.actor, self.critic = actor, critic

    def forward(self, *, with_values: bool = False, **inputs: Any) -> Any:  # noqa: ANN401
        """The actor's output; its ``token_values`` [rows, positions] are in fp32."""
        found = self.actor(**inputs)
        if with_values:
            found["token_values"] = self.critic(**inputs).logits[:, :, 0].float()
        return found


def actor_of(module: Any) -> Any:  # noqa: ANN401
    """The language model in what is trained."""
    return module.actor if isinstance(module, ActorCritic) else module
