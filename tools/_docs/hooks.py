"""What mkdocs does beyond mkdocs.yml: pages from outside docs/, a page of decisions, and links.

Owns where a file of the project is on the site. Pages link to each other as files of the checkout, so that
the links work there and on a code host; here each link is turned to the page on the site. What must not
break: a link to a file that is no page loses its target and keeps its words; a link to nothing stays, so
that mkdocs refuses it.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]

#: Pages that stand outside docs/, and where they are on the site.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "schema/zookeeper.md": "reference/zookeeper.md",
}

DECISIONS = "decisions/index.md"

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(`{3,})", re.MULTILINE)
_ORIGIN = {place: origin for origin, place in OUTSIDE.items()}


def on_config(config: Any) -> Any:  # noqa: ANN401 - mkdocs is not there where types are checked
    """Put the pages of a folder where the navigation names all of them."""
    config.nav = _expanded(config.nav)
    return config


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401
    """Add the pages that are not in docs/."""
    for origin, place in OUTSIDE.items():
        files.append(File.generated(config, place, content=(ROOT / origin).read_text("utf-8")))
    files.append(File.generated(config, DECISIONS, content=_decisions()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Turn each link to a file of the checkout to its page."""
    place = page.file.src_uri
    return "".join(_turned(part, place) for part in _prose_and_fences(markdown))


def _expanded(nav: list[Any]) -> list[Any]:
    entries: list[Any] = []
    for entry in nav:
        if isinstance(entry, dict):
            entries += [
                {title: _expanded(below) if isinstance(below, list) else below}
                for title, below in entry.items()
            ]
        elif entry.endswith("/*"):
            folder = entry.removesuffix("/*")
            entries += [f"{folder}/{path.name}" for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
        else:
            entries.append(entry)
    return entries


def _decisions() -> str:
    lines = ["# Decisions", "", "Why cassq is as it is, and the price of each choice.", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        title = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join([*lines, ""])


def _prose_and_fences(markdown: str) -> Iterator[str]:
    """Yield a page in parts: prose, and each fenced block with its fence."""
    end = 0
    fence = ""
    begin = 0
    for found in _FENCE.finditer(markdown):
        if not fence:
            fence, begin = found[1], found.start()
            yield markdown[end:begin]
        elif found[1] == fence:
            end = found.end()
            fence = ""
            yield markdown[begin:end]
    yield markdown[end:]


def _turned(part: str, place: str) -> str:
    return part if part.startswith("```") else _LINK.sub(lambda link: _turned_link(link, place), part)


def _turned_link(link: re.Match[str], place: str) -> str:
    mark, words, target = link.groups()
    path, hash_, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", path) or place == DECISIONS:
        return link[0]
    origin = _ORIGIN.get(place, f"docs/{place}")
    file = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
    if not (ROOT / file).exists():
        return link[0]  # mkdocs says so
    wanted = _place_of(file)
    if wanted is None:
        return words
    return f"{mark}[{words}]({posixpath.relpath(wanted, posixpath.dirname(place) or '.')}{hash_}{anchor})"


def _place_of(origin: str) -> str | None:
    """Return where a file of the project is on the site."""
    if origin in OUTSIDE:
        return OUTSIDE[origin]
    if origin == "docs/decisions":
        return DECISIONS
    if origin.startswith("docs/") and (ROOT / origin).is_file():
        return origin.removeprefix("docs/")
    return None
