"""Requests to a teacher and its replies, as values."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TeacherRequest:
    """One request: everything that the answer depends on, and the candidate's number."""

    url: str
    model: str
    messages: list[Json]
    sampling: Json
    number: int = 0

    @property
    def key(self) -> str:
        """Cache key of the reply: a hash of the request."""
        document = [self.url, self.model, self.messages, self.sampling, self.number]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class TeacherReply:
    """The teacher's reply to one request."""

    text: str
    ended: str  # its finish_reason
    prompt_tokens: int
    completion_tokens: int
