"""The profile as one page: HTML with its charts inside, to be opened from a mail or a wiki.

The charts are SVG, drawn by Matplotlib; nothing is loaded from anywhere.
"""

import html
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import Row

    from cassq.spark.pipeline.profile import Profile

#: So many rows of a table are shown, and so many bars or points of a chart.
ROWS_SHOWN = 15
_POINTS = 2000

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2733 }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2.5rem }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid #dde3ea }
td { overflow-wrap: anywhere }
td.number, th.number { text-align: right }
svg { max-width: 100%; height: auto } .none { color: #6a7683 }
"""


def render(profile: "Profile", title: str) -> str:
    """Return the page. Frames of a profile are small; the largest ones of each are fetched.

    Args:
        title: what was profiled.
    """
    pushers = _largest(profile.pushers, "living")
    pipes = _largest(profile.pipes, "age_s", _POINTS)
    holders = _largest(profile.holders, "oldest_lease_s")
    headers = _largest(profile.headers, "living")
    made_at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        f"<h1>{html.escape(title)}</h1><p>{made_at}</p>",
        "<h2>Pushers: whose messages wait</h2>",
        _bars(pushers, ("pusher",), "living", "messages that have not ended") + _table(pushers),
        "<h2>Pipes: age against size</h2>",
        _points(pipes) + _table(pipes[:ROWS_SHOWN]),
        "<h2>Holders: leases, the longest first</h2>",
        _bars(holders, ("holder",), "oldest_lease_s", "seconds since the oldest lease") + _table(holders),
        "<h2>Headers: which messages wait</h2>",
        _bars(headers, ("name", "value"), "living", "messages that have not ended") + _table(headers),
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _largest(frame: Any, column: str, count: int = ROWS_SHOWN) -> "list[Row]":  # noqa: ANN401 - a DataFrame
    found: list[Row] = frame.orderBy(frame[column].desc_nulls_last()).limit(count).collect()
    return found


def _table(rows: "Sequence[Row]") -> str:
    if not rows:
        return '<p class="none">none</p>'
    names = list(rows[0].asDict())
    is_number = {name: isinstance(rows[0][name], int | float) for name in names}
    mark = {name: ' class="number"' if is_number[name] else "" for name in names}
    head = "".join(f"<th{mark[name]}>{html.escape(name)}</th>" for name in names)
    lines = [
        "".join(f"<td{mark[name]}>{html.escape(_tell(row[name]))}</td>" for name in names) for row in rows
    ]
    return f"<table><tr>{head}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _tell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _bars(rows: "Sequence[Row]", named: "Sequence[str]", figure: str, words: str) -> str:
    if not rows:
        return ""
    axes = _axes(0.6 + 0.3 * len(rows))
    names = ["=".join(str(row[column]) for column in named) for row in rows]
    labels = [f"{place + 1}. {_shorten(name)}" for place, name in enumerate(names)]
    axes.barh(labels, [row[figure] or 0 for row in rows], color="#2f6f9f")
    axes.invert_yaxis()
    axes.set_xlabel(words)
    return _svg(axes)


def _points(pipes: "Sequence[Row]") -> str:
    if not pipes:
        return ""
    axes = _axes(3.6)
    for phase, colour in (("open", "#2f6f9f"), ("sealed", "#c0672b")):
        some = [pipe for pipe in pipes if pipe["phase"] == phase]
        axes.scatter(
            [pipe["body_bytes"] or 0 for pipe in some],
            [pipe["age_s"] for pipe in some],
            s=14,
            color=colour,
            label=phase,
            alpha=0.7,
        )
    axes.set_xlabel("bytes of bodies")
    axes.set_ylabel("seconds since its oldest message was pushed")
    axes.legend(frameon=False)
    return _svg(axes)


def _axes(height: float) -> "Axes":
    from matplotlib.figure import Figure  # noqa: PLC0415 - only a page needs it; no window is ever opened

    axes: Axes = Figure(figsize=(9, height), layout="constrained").subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _svg(axes: "Axes") -> str:
    file = io.StringIO()
    figure: Any = axes.figure
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()[file.getvalue().index("<svg") :]


def _shorten(value: object) -> str:
    text = str(value).replace("$", r"\$")  # which would begin a formula
    return text if len(text) <= 40 else f"{text[:39]}…"
