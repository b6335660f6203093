"""What a teacher is asked, and what it says: values, without a network."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request: the candidate of this number, with everything that its answer depends on."""

    url: str
    model: str
    messages: list[Json]
    sampling: Json
    number: int = 0

    @property
    def key(self) -> str:
        """Where its reply is kept: a hash of all that it is."""
        told = [self.url, self.model, self.messages, self.sampling, self.number]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the teacher said to one request."""

    text: str
    ended: str  # its finish_reason
    prompt_tokens: int
    completion_tokens: int
