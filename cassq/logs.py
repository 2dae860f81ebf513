"""Log lines as JSON, for whoever collects the output of many processes.

import logging
from cassq.logs import JsonFormatter

handler = logging.StreamHandler()
handler.setFormatter(JsonFormatter())
logging.basicConfig(level=logging.INFO, handlers=[handler])

Owns the names of the fields. What must not break: a record is one line, whatever is in it, and none is lost
because a value of it cannot be written as JSON.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from cassq.model.events import code_of

#: What every record has; all else was given by `extra=`.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object in one line.

    Its fields are `time` (UTC), `level`, `logger`, `message`, `process`, and where there is one `exception`
    with its `code`, `trace_id` and `span_id` of what OpenTelemetry traces just then, and what was given by
    `extra=`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if record.exc_info and record.exc_info[1]:
            told["code"] = code_of(record.exc_info[1])
            told["exception"] = self.formatException(record.exc_info)
        told |= _traced()
        for name in vars(record).keys() - _USUAL - told.keys():
            told[name] = getattr(record, name)
        try:
            return json.dumps(told, default=_shown, allow_nan=False)
        except (TypeError, ValueError, RecursionError):  # a key that is no text, or what holds itself
            return json.dumps({name: _shown(value) for name, value in told.items()})


def _traced() -> dict[str, str]:
    """Return which trace the thread or task is in, if the program traces."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry import trace  # noqa: PLC0415 - it may be missing

    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(span.trace_id), "span_id": trace.format_span_id(span.span_id)}


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"
