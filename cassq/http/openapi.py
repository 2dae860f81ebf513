"""The OpenAPI document, made from the table of routes.

Owns how a route is described. Refuses to say anything that the table does not.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from cassq import __version__
from cassq.http.problems import MEDIA_TYPE, Problem
from cassq.http.routes import JSON, Route
from cassq.limits import NAME_LENGTH_MAX

_PARAMETER = re.compile(r"\{(\w+)\}")
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$", "maxLength": NAME_LENGTH_MAX}
_ID = {"type": "string", "pattern": "^[0-9a-f-]{36}:[0-9]{1,19}$"}
_REF = "#/components/schemas/{name}"

#: Media types of bodies that are no JSON document.
_BYTES = {"type": "string", "format": "binary"}


def make_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the document."""
    kinds: list[type] = [Problem]
    for route in routes:
        told = [kind for each in route.answers.values() for kind in _forms(each)]
        kinds += [kind for kind in (*told, route.body) if isinstance(kind, type)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    for each in components.values():
        if each.get("additionalProperties", True):  # an answer: what it has no value for is left out
            for name, told in each.get("properties", {}).items():
                each["properties"][name] = _plain(told)
    schema_of = dict(zip(map(str, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cassq",
            "version": __version__,
            "description": "A durable message queue. Errors are RFC 9457 problems; `code` is stable.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _operation(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": f"{route.handle.__module__.rpartition('.')[2]}_{route.handle.__name__.strip('_')}",
        "summary": route.summary,
        "parameters": [*_path_words(route), *_query_words(route)],
        "responses": {
            **{str(status): _answer(kind, schema_of) for status, kind in route.answers.items()},
            "default": {
                "description": "A problem",
                "content": {MEDIA_TYPE: {"schema": schema_of[str(Problem)]}},
            },
        },
    }
    if route.right is None:
        told["security"] = []
    else:
        told["description"] = f"Needs the right `{route.right.value}`."
    if route.body is not None:
        told["requestBody"] = {"content": {JSON: {"schema": schema_of[str(route.body)]}}}
    elif route.media:
        told["requestBody"] = {"content": {media: {"schema": _BYTES} for media in route.media}}
    return told


def _forms(told: Any) -> tuple[Any, ...]:  # noqa: ANN401 - types, or media types
    return told if isinstance(told, tuple) else () if told is None else (told,)


def _answer(told: Any, schema_of: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - as above
    content: dict[str, Any] = {}
    for kind in _forms(told):
        if isinstance(kind, str):
            content[kind] = {"schema": {"type": "string"}}
        else:
            content[JSON] = {"schema": schema_of.get(str(kind), {"type": "object"})}
    return {"description": "Done", "content": content} if content else {"description": "Nothing"}


def _path_words(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _ID if name == "id" else _NAME}
        for name in _PARAMETER.findall(route.path)
    ]


@cache
def _schema_of_query(query: type[msgspec.Struct]) -> dict[str, Any]:
    _, components = msgspec.json.schema_components([query], ref_template=_REF)
    return dict(components[query.__name__])


def _query_words(route: Route) -> list[dict[str, Any]]:
    schema = _schema_of_query(route.query)
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _plain(each)}
        for name, each in schema["properties"].items()
    ]


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a word, or of a field of an answer: one that may be left out is never null."""
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if not kinds:
        return schema
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
