"""docs/errors.md, from the exceptions of the service and the code that raises them."""

import ast
from collections.abc import Iterator

from service.domain import errors
from service.domain.errors import InvalidRequest, ServiceError
from tests.repository.pages.markdown import code, table
from tests.repository.sources import ROOT, python_files, text

PAGE = ROOT / "docs" / "errors.md"
_HEAD = """\
# Error codes of the API

For programs that call the API: every code of an error and what it means. Every error has OpenAI's
form: `{"error": {"message", "type", "param", "code"}}`. The message says what to send instead.
[Troubleshooting](troubleshooting.md) has the remedies.

Generated from the code by `make docs`; do not edit.

"no" under *retry*: the answer has `x-should-retry: false`, so OpenAI's clients do not repeat the
request. Otherwise they retry 408, 409, 429 and 5xx. Codes without a caller (500) are bugs.

## Errors by status
"""
_AT_PLACE = """
## More codes of 400

Status 400, type `invalid_request_error`. `...` stands for what varies.
"""


def page() -> str:
    """Return the whole page."""
    kinds = sorted(set(_kinds(ServiceError)), key=lambda kind: (kind.status, kind.code))
    rows = [
        (code(k.code), str(k.status), code(k.type), "no" if k.retry is False else "", _meaning(k))
        for k in kinds
    ]
    lines = [_HEAD, *table(("code", "status", "type", "retry", "meaning"), rows)]
    declared = {kind.code for kind in kinds}
    template_rows = sorted(
        (c, template) for c, template in _at_places().items() if c not in declared
    )
    lines += [
        _AT_PLACE,
        *table(("code", "a message"), ((code(c), template) for c, template in template_rows)),
    ]
    return "\n".join(lines) + "\n"


def _kinds(kind: type[ServiceError]) -> Iterator[type[ServiceError]]:
    if kind.__module__ == errors.__name__ and "code" in vars(kind):
        yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)


def _meaning(kind: type[ServiceError]) -> str:
    if kind is ServiceError:
        return "An unexpected error: report it with the request id."
    return (kind.__doc__ or "").strip().split("\n")[0].replace("``", "`")


def _at_places() -> dict[str, str]:
    """Return one message for each code that is an argument of an InvalidRequest."""
    templates: dict[str, str] = {}
    for file in python_files():
        if file.parts[0] == "service":
            for node in ast.walk(ast.parse(text(file))):
                if isinstance(node, ast.Call) and _name(node.func) == InvalidRequest.__name__:
                    for error_code in _codes(node):
                        templates.setdefault(error_code, _template(node))
    return templates


def _codes(call: ast.Call) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg == "code":
            for node in ast.walk(keyword.value):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def _name(node: ast.expr) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def _template(call: ast.Call) -> str:
    message = call.args[0] if call.args else ast.Constant("")
    if isinstance(message, ast.Constant) and isinstance(message.value, str):
        return message.value
    if isinstance(message, ast.JoinedStr):
        pieces = (v.value if isinstance(v, ast.Constant) else "..." for v in message.values)
        return "".join(map(str, pieces))
    return "..."
