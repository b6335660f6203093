"""The words of a Resource Graph query, and the refusal of a query that cannot be read."""

import re
from dataclasses import dataclass

WORD = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*)+)
    |(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
    |(?P<number>\d{1,15}(?:\.\d{1,15})?(?!\d))
    |(?P<name>!?(?:in~|in\b)|!(?:has|contains|startswith|endswith)\b|[A-Za-z_]\w*(?:-(?:expand|away)\b)?)
    |(?P<sign>=~|!~|==|!=|<=|>=|[<>=|()\[\],.+*/-])""",
    re.VERBOSE,
)
END = "<EOF>"


@dataclass(frozen=True)
class Token:
    """One word; ``kind`` is string, number, name, sign or end. A string's quotes are gone."""

    kind: str
    text: str
    at: int


class QueryError(Exception):
    """The query is refused; ``details`` is what Resource Graph tells of it."""

    def __init__(self, details: dict[str, object]) -> None:
        super().__init__(str(details))
        self.details = details


def tokens(text: str) -> list[Token]:
    """All words of a query with the end behind them."""
    found, at = [], 0
    while at < len(text):
        match = WORD.match(text, at)
        if match is None:
            raise parser_failure(text, at, text[at])
        kind = match.lastgroup or ""
        if kind != "space":
            word = match.group()
            found.append(Token(kind, _plain(word) if kind == "string" else word, at))
        at = match.end()
    return [*found, Token("end", END, len(text))]


def parser_failure(text: str, at: int, token: str, expected: str = "") -> QueryError:
    """The query cannot be read from this place on."""
    lines = text[:at].split("\n")
    details: dict[str, object] = {
        "code": "ParserFailure",
        "message": "ParserFailure",
        "line": len(lines),
        "characterPositionInLine": len(lines[-1]),
        "token": token,
    }
    return QueryError(details | ({"expectedToken": expected} if expected else {}))


def _plain(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted[1:-1])
