"""Logs: one JSON object a line on stderr, with an event name and ids."""

import json
import logging
import sys
from typing import Any

_PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Whatever is passed as ``extra`` becomes a member."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        line: dict[str, Any] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        line |= {k: v for k, v in vars(record).items() if k not in _PLAIN}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up(level: str = "INFO") -> None:
    """Send every log line of the process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("azure", "httpx", "uvicorn.access", "azure.core.pipeline.policies"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
