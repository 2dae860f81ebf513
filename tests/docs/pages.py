"""The markdown files of the project: their examples, links, headings and tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("schema/**/*.md")])

_FENCE = re.compile(r"^(```+)(\w*)[^\n]*\n(.*?)^\1\s*$", re.DOTALL | re.MULTILINE)
_MARK = re.compile(r"<!-- test: (\w+) -->\s*$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """One fenced block; `mark` is what the comment `<!-- test: MARK -->` before it says."""

    page: Path
    line: int
    language: str
    code: str
    mark: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def examples() -> Iterator[Example]:
    """Yield the fenced blocks of all pages."""
    for page in PAGES:
        text = page.read_text("utf-8")
        for found in _FENCE.finditer(text):
            before = text[: found.start()]
            mark = _MARK.search(before)
            yield Example(page, before.count("\n") + 2, found[2], found[3], mark[1] if mark else "")


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    """Return the targets of a page's links that stay inside the project."""
    return [target for target in _LINK.findall(prose(page)) if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings have on code hosts."""
    titles = (re.sub(r"[`*_]", "", title).lower() for title in _HEADING.findall(prose(page)))
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in titles}


def table_below(page: Path, heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading, without its title row."""
    _, found, rest = page.read_text("utf-8").partition(f"\n{heading}\n")
    assert found, f"{page.name} has no heading {heading!r}"
    section = re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    assert len(rows) > 2, f"{page.name} has no table below {heading!r}"
    return [[cell.strip() for cell in row[1:-1].split("|")] for row in rows[2:]]
