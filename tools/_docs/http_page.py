"""The page of the calls over HTTP, made from the document that `/openapi.json` tells.

Owns how a call and a type are shown. Refuses to say anything that the document does not. A test compares the
page with what is made here; `tools/docs --http` writes it.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cassq.http.openapi import make_document
from cassq.http.table import ROUTES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "http.md"

#: The parts of the page, and how the paths of each begin.
PARTS = {"Queues": "/v1/queues", "Topics": "/v1/topics", "The process": "/"}

_HEAD = """# The calls over HTTP

Made from `/openapi.json` by `tools/docs --http`: paths, words, types and answers. What the calls mean tells
[the page of the service](../how-to/service.md#the-calls). A field that is not required may be left out of a
body, and is left out of an answer where it has no value; no field of an answer is null. Whatever goes wrong
is a [Problem](#problem).
"""

Json = Mapping[str, Any]


def make_page(document: Json) -> str:
    """Return the page."""
    left = [(path, method, told) for path, of in document["paths"].items() for method, told in of.items()]
    schemas = sorted(document["components"]["schemas"].items())
    writer = _Writer(
        {name: ", ".join(f"`{each}`" for each in of["enum"]) for name, of in schemas if "enum" in of}
    )
    lines = [_HEAD]
    for title, begin in PARTS.items():
        own = [each for each in left if each[0].startswith(begin)]
        left = [each for each in left if each not in own]
        lines.append(f"## {title}\n")
        for path, method, told in own:
            lines += writer.call(path, method.upper(), told)
    lines.append("## Types\n")
    for name, schema in schemas:
        if "properties" in schema:
            lines += writer.type(name, schema)
    return "\n".join(lines)


class _Writer:
    """Writes calls and types as Markdown.

    Args:
        enums: the values of types that are a few words, by their names.
    """

    def __init__(self, enums: Mapping[str, str]) -> None:
        self._enums = enums

    def call(self, path: str, method: str, told: Json) -> Iterator[str]:
        yield f"### `{method} {path}`\n"
        right = "Needs no key." if told.get("security") == [] else told["description"]
        yield f"{told['summary']}. {right}\n"
        words = [each for each in told["parameters"] if each["in"] == "query"]
        if words:
            yield "| word of the query | type | |"
            yield "| --- | --- | --- |"
            for each in words:
                is_required = "required" if each["required"] else _default(each["schema"])
                yield f"| `{each['name']}` | {self._kind(each['schema'])} | {is_required} |"
            yield ""
        if body := told.get("requestBody"):
            yield f"Body: {self._contents(body['content'])}.\n"
        for status, each in told["responses"].items():
            if status != "default":
                content = each.get("content")
                yield f"Answers {status}: {self._contents(content) if content else 'nothing'}.\n"

    def _contents(self, content: Json) -> str:
        return ", or ".join(
            self._kind(each["schema"]) if media == "application/json" else f"`{media}`"
            for media, each in content.items()
        )

    def type(self, name: str, schema: Json) -> Iterator[str]:
        text, meanings = _described(schema.get("description", ""))
        yield f"### {name}\n"
        if text:
            yield f"{text}\n"
        yield "| field | type | | |"
        yield "| --- | --- | --- | --- |"
        required = schema.get("required", ())
        for field, kind in schema["properties"].items():
            is_required = "required" if field in required else _default(kind)
            yield f"| `{field}` | {self._kind(kind)} | {is_required} | {meanings.get(field, '')} |"
        yield ""

    def _kind(self, schema: Json) -> str:
        """Return a type in words."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return self._enums.get(name) or f"[{name}](#{name.lower()})"
        if "anyOf" in schema:
            return " or ".join(self._kind(each) for each in schema["anyOf"] if each != {"type": "null"})
        if "enum" in schema:
            return ", ".join(f"`{each}`" for each in schema["enum"])
        if schema.get("type") == "array":
            return f"list of {self._kind(schema['items'])}{_bounds(schema, 'Items')}"
        if schema.get("type") == "object":
            values = schema.get("additionalProperties")
            return f"object of {self._kind(values)}" if isinstance(values, dict) and values else "object"
        named = {"date-time": "time", "binary": "bytes"}.get(schema.get("format", ""))
        return f"{named or schema.get('type', 'anything')}{_bounds(schema)}"


def _described(text: str) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of a type, and of its fields."""
    words, _, fields = text.partition("Attributes:")
    meanings = {}
    for found in re.finditer(r"^ +((?:\w+, )*\w+): (.*(?:\n {8,}.*)*)", fields, re.MULTILINE):
        for name in found[1].split(", "):
            meanings[name] = " ".join(found[2].split()).replace("|", "\\|")
    return " ".join(words.split()), meanings


def _default(schema: Json) -> str:
    default = schema.get("default")
    return "" if default in (None, "", [], {}) else f"else {str(default).lower()}"


def _bounds(schema: Json, what: str = "") -> str:
    low, high = (schema.get(f"{side}{what or 'imum'}") for side in ("min", "max"))
    if low is None and high is None:
        return ""
    return (
        f", {high} at most" if low is None else f", {low} to {high}" if high is not None else f", from {low}"
    )


if __name__ == "__main__":
    PAGE.write_text(make_page(make_document(ROUTES)), "utf-8")
