"""The page of the calls over HTTP is what the routes say, and names each of them."""

import sys

from pages import ROOT, anchors

from cassq.http.openapi import make_document
from cassq.http.table import ROUTES

sys.path.append(str(ROOT / "tools"))

from _docs.http_page import PAGE, make_page

DOCUMENT = make_document(ROUTES)


def test_the_page_is_what_the_tool_makes() -> None:
    assert PAGE.read_text("utf-8") == make_page(DOCUMENT), "tools/docs --http makes it anew"


def test_every_call_and_every_type_has_a_heading() -> None:
    text = PAGE.read_text("utf-8")
    for path, methods in DOCUMENT["paths"].items():
        for method in methods:
            assert f"### `{method.upper()} {path}`" in text
    types = {name for name, told in DOCUMENT["components"]["schemas"].items() if "properties" in told}
    assert {name.lower() for name in types} <= anchors(PAGE)


def test_no_field_of_an_answer_is_told_as_null() -> None:
    for name, told in DOCUMENT["components"]["schemas"].items():
        if told.get("additionalProperties", True):
            assert "null" not in str(told.get("properties")), name
