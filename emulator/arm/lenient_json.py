"""JSON as Azure's deployments take it: comments, bare keys, commas before the end, line breaks."""

import json
import re
from typing import Any

STRING = r'("(?:[^"\\]|\\.)*(?:"|\Z))'
COMMENT = re.compile(STRING + r"|(?://[^\n]*|/\*.*?(?:\*/|\Z))", re.DOTALL)
COMMA = re.compile(STRING + r"|,(?=\s*[}\]])", re.DOTALL)
BARE_KEY = re.compile(STRING + r"|([A-Za-z_$][\w$]*)(?=\s*:)", re.DOTALL)


def loads(text: str) -> Any:  # noqa: ANN401 - JSON
    """Parse lenient JSON, or raise ValueError."""
    text = COMMENT.sub(lambda match: match[1] or " ", text)
    text = COMMA.sub(lambda match: match[1] or "", text)
    text = BARE_KEY.sub(lambda match: match[1] or f'"{match[2]}"', text)
    return json.loads(text, strict=False)
