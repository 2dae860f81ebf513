"""What Queuey's clients send and are told: fields, bounds, and errors by the names of fields.

Owns the words. Refuses unknown fields, as `/v1` does. What must not break: nothing is done for a request of
which one field is refused.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cassq.errors import InvalidOptionError, KeyRefusedError, QueueNotFoundError, TopicNotFoundError
from cassq.http.bodies import JSON_MAX, read_body
from cassq.http.problems import PartlyDoneError, RefusedError, answer_problem, shown, to_problem
from cassq.http.routes import JSON, Call, answer
from cassq.model.ids import shorten

#: A key comes by one of these schemes, or in the header that the first proposal had.
_SCHEMES = {"application", "bearer"}
_KEY_HEADER = "applicationkey"

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

#: So many refused fields are named; of others it is told how many there are.
REFUSED_MAX = 20

_BAD_REQUEST = 400


class FieldsError(RefusedError):
    """Raised when fields are refused.

    Attributes:
        fields: why, by their names.
    """

    def __init__(self, fields: Mapping[str, str], status: int = _BAD_REQUEST) -> None:
        super().__init__(status, "fields", "; ".join(f"{name}: {words}" for name, words in fields.items()))
        self.fields = dict(fields)


def refused(name: str, words: str, status: int = _BAD_REQUEST) -> FieldsError:
    """Return an error that names one field, or what Queuey called the error."""
    return FieldsError({name: words}, status)


def not_carried(name: str, words: str) -> FieldsError:
    """Return the error for what a topic cannot do."""
    return refused(name, words, 501)


class Refusals:
    """What is refused of one request: an answer names no more than `REFUSED_MAX` of them.

    Attributes:
        told: why, by the names of fields.
        more: how many others there are.
    """

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.more = 0

    def add(self, name: str, words: str) -> None:
        """Add a field; what was said of it first stands."""
        if name in self.told:
            return
        if len(self.told) < REFUSED_MAX:
            self.told[name] = words
        else:
            self.more += 1

    def check(self) -> None:
        """Raise where there are any.

        Raises: FieldsError: a field was refused.
        """
        if self.told:
            raise FieldsError(self.told | ({"…": f"and {self.more} more"} if self.more else {}))


class Fields:
    """The fields of one request, which are taken one by one.

    Args:
        errors: what is refused so far.
        at: stands before the names of those that are refused.
    """

    def __init__(self, given: Mapping[str, Any], errors: Refusals | None = None, at: str = "") -> None:
        self._left = dict(given)
        self._at = at
        self._errors = errors or Refusals()

    def take(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return a value as it came; None where none did."""
        return self._left.pop(name, None)

    def refuse(self, name: str, words: str) -> None:
        """Refuse a field; what was said of it first stands."""
        self._errors.add(self._at + name, words)

    def text(self, name: str) -> str | None:
        """Return a text; None where none came, or an empty one."""
        return self.any_text(name) or None

    def any_text(self, name: str) -> str | None:
        """Return a text, which may be empty; None where none came."""
        value = self.take(name)
        if value is None or isinstance(value, str):
            return value
        self.refuse(name, f"{shorten(value)} is not a string")
        return None

    def number(self, name: str, low: int, high: int) -> int | None:
        """Return a whole number; None where none came, or it is refused."""
        value = self.take(name)
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not _NUMBER.fullmatch(str(value)):
            self.refuse(name, f'"{str(value)[:40]}" is not a number')
            return None
        number = int(value)
        if number > high:
            self.refuse(name, f"{number} is greater than maximum value {high}")
        elif number < low:
            self.refuse(name, f"{number} is less than minimum value {low}")
        else:
            return number
        return None

    def choice(self, name: str, choices: Collection[str]) -> str | None:
        """Return one of some words; None where none came."""
        value = self.text(name)
        if value is not None and value not in choices:
            self.refuse(name, f'"{value[:40]}" is not one of {", ".join(choices)}')
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return whether it is set."""
        value = self.take(name)
        if value is None:
            return default
        found = _FLAGS.get(str(value).lower())
        if found is None:
            self.refuse(name, f"{shorten(value)} is neither true, 1, yes nor false, 0, no")
        return default if found is None else found

    def seconds(self, name: str, most: float) -> float | None:
        """Return seconds; None where none came."""
        value = self.take(name)
        if value is None:
            return None
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        if isinstance(value, bool) or not 0 <= number <= most:
            self.refuse(name, f"{shorten(value)} must be seconds, from 0 to {most:g}")
            return None
        return number

    def refuse_rest(self) -> None:
        """Refuse what nobody took."""
        names = list(self._left)
        for name in names[:REFUSED_MAX]:
            self.refuse(name[:40], "there is no such field")
        self._errors.more += len(names[REFUSED_MAX:])

    def end(self) -> None:
        """Check that all was taken.

        Raises: FieldsError: a field was refused, or is unknown.
        """
        self.refuse_rest()
        self._errors.check()


async def read_fields(call: Call) -> Fields:
    """Read the body: a form, or an object of JSON.

    Raises: FieldsError: it is neither.
    """
    with call.share() as share:
        text = await read_body(call.request, share, JSON_MAX)
    if is_json(call.request):
        return Fields(read_object(text or b"{}"))
    try:
        pairs = parse_qsl(
            text.decode(), keep_blank_values=True, strict_parsing=bool(text), max_num_fields=1000
        )
    except ValueError as error:
        raise refused("body", f"it is neither a form nor, by its Content-Type, JSON: {error}") from None
    if len(dict(pairs)) < len(pairs):
        raise refused("body", "a field is there twice")
    return Fields(dict(pairs))


def read_object(text: bytes) -> dict[str, Any]:
    """Return an object of JSON.

    Raises: FieldsError: it is none.
    """
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise refused("InvalidParameter", "the body is not an object of JSON") from None


def is_json(request: Request) -> bool:
    """Tell whether the body says that it is JSON."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == JSON


def done(status: int = 200, **told: Any) -> Response:  # noqa: ANN401 - JSON
    """Answer that it was done."""
    return answer({"status": "ok", **told}, status)


def key_of(request: Request) -> str | None:
    """Return the key of a request.

    Raises: KeyRefusedError: there are several.
    """
    given = _keys(request)
    if len(given) > 1:
        raise KeyRefusedError("there are several keys: send one")
    return given[0] if given else None


def _keys(request: Request) -> list[str]:
    given = request.headers.getlist(_KEY_HEADER)
    for each in request.headers.getlist("authorization"):
        scheme, _, key = each.strip().partition(" ")
        given.append(key.strip() if scheme.lower() in _SCHEMES else each)
    return given


def tell(request: Request, error: Exception) -> Response:
    """Answer with an error, in Queuey's form."""
    if isinstance(error, KeyRefusedError) and not _keys(request):
        error = refused("AccessDenied", "Access was denied: send `Authorization: Application KEY`", 403)
    plain = answer_problem(error)  # it logs, and knows the headers
    told: dict[str, Any] = {"status": "error", "error_msg": _fields_of(error)}
    if isinstance(error, PartlyDoneError):
        so_far = {"done": error.done, "outcomes": error.outcomes}
        told |= {name: value for name, value in so_far.items() if value is not None}
    made = answer(told, plain.status_code)
    for name, value in plain.headers.items():
        if name not in {"content-type", "content-length"}:
            made.headers[name] = value
    return made


def _fields_of(error: Exception) -> dict[str, str]:
    if isinstance(error, FieldsError):
        return {shown(name): shown(words) for name, words in error.fields.items()}
    if isinstance(error, QueueNotFoundError | TopicNotFoundError):
        return {"InvalidQueueName": "Queue of that name was not found."}
    problem = to_problem(error)
    words = problem.detail.replace("Authorization: Bearer", "Authorization: Application")
    return {_NAMES.get(problem.code, problem.code): words}


#: What Queuey called them.
_NAMES = {
    "key-refused": "InvalidApplicationKey",
    "access-denied": "AccessDenied",
    "body-too-large": "body",
    InvalidOptionError.code: "InvalidParameter",
}
