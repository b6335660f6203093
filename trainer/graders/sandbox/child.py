"""The program of a python grader's process: reads requests on stdin, answers on stdout.

Each line is a JSON object. First `{"source"}`, answered by `{"ready": true}` or `{"error"}`; then
`{"number", "text", "item"}`, answered by `{"number", "score"}` or `{"number", "error"}`. User code
runs in this process and can write anything here: the parent trusts nothing but a valid score.
"""

import json
import math
import numbers
import os
import random
import sys
import types
from typing import Any, BinaryIO

from trainer.graders.sandbox.restrictions import restrict_process

_LONGEST_ERROR = 500  # characters


def main() -> None:
    """Serve requests; the argument is the parent's process id."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    try:
        restrict_process(int(sys.argv[1]))
    except OSError as e:
        _reply(replies, {"error": str(e)})
        return
    os.dup2(null, 2)
    sys.argv = [""]
    code = compile(json.loads(requests.readline())["source"], "grader", "exec", dont_inherit=True)
    _reply(replies, {"ready": True})
    for line in requests:
        request = json.loads(line)
        _reply(replies, {"number": request["number"], **_outcome(code, request)})


def _reply(replies: BinaryIO, message: dict[str, Any]) -> None:
    replies.write(json.dumps(message).encode() + b"\n")


def _outcome(code: types.CodeType, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return _checked_score(_score(code, request))
    except BaseException as e:  # noqa: BLE001 - whatever the user's code raises, SystemExit too
        return {"error": _error_text(e)}


def _score(code: types.CodeType, request: dict[str, Any]) -> object:
    """Run the source anew, so that no answer leaves anything in its globals for the next."""
    scope: dict[str, Any] = {"__name__": "grader"}
    random.seed(0)
    exec(code, scope)  # noqa: S102 - what this process is for
    random.seed(0)
    return scope["grade"](_sample(request["text"]), request["item"])


def _sample(text: str) -> dict[str, Any]:
    """Build OpenAI's `sample`. There are no tools."""
    message = {"role": "assistant", "content": text}
    return {
        "output_text": text,
        "output_json": _json(text),
        "output_tools": [],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }


def _json(text: str) -> Any:  # noqa: ANN401 - what json.loads gives
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _checked_score(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"error": f"grade returned {value}; return 1.0 or 0.0"}
    if not isinstance(value, numbers.Real):
        return {"error": f"grade returned {type(value).__name__}; return a number"}
    try:
        score = float(value)
    except OverflowError:
        return {"error": "grade returned a number that is too large"}
    if not math.isfinite(score):
        return {"error": f"grade returned {score}; return a finite number"}
    return {"score": score}


def _error_text(error: BaseException) -> str:
    """Format an error with the user's last line: `line 3: ZeroDivisionError: ...`."""
    line, frame = 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "grader":
            line = frame.tb_lineno
        frame = frame.tb_next
    try:
        message = str(error)[:_LONGEST_ERROR]
    except BaseException:  # noqa: BLE001 - an exception of the user's own making
        message = ""
    text = type(error).__name__[:_LONGEST_ERROR] + (f": {message}" if message else "")
    return f"line {line}: {text}" if line else text


if __name__ == "__main__":
    main()
