"""Whether a ratio fell: today's short run against the one that was kept.

Owns the comparison. Refuses to compare times or rates: they are the machine's. What must not break: a ratio
that was kept and is missing today is told, as a fall is.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from _bench.measuring.compare import Figures, ratio

#: A ratio may be lower than the kept one by so much; above that it is told.
DROP_MAX = 0.25

BASELINE = Path(__file__).with_name("baseline.json")


def ratios_of(raw: Mapping[str, list[float]]) -> dict[str, float]:
    """Return ours / theirs of each row of `throughput`, by its key; medians of the rounds."""
    keys = [name.removesuffix(" ours") for name in raw if name.endswith(" ours")]
    return {
        key: ratio(Figures(tuple(raw[f"{key} ours"])), Figures(tuple(raw[f"{key} theirs"]))).median
        for key in keys
    }


def falls(
    kept: Mapping[str, float], today: Mapping[str, float], drop_max: float = DROP_MAX
) -> dict[str, str]:
    """Return what is lower than it may be, or missing, with words; by key."""
    found = {}
    for key, before in kept.items():
        if key not in today:
            found[key] = f"{key}: was {before:.2f} of its ceiling, and is not measured any more"
        elif today[key] < before * (1 - drop_max):
            drop = 1 - today[key] / before
            found[key] = (
                f"{key}: {today[key]:.2f} of its ceiling, {drop:.0%} below the {before:.2f} that were kept"
            )
    return found


def better(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Return the better of two runs, key by key: a noisy machine makes things slower, never faster."""
    return {key: max(run[key] for run in (first, second) if key in run) for key in {**first, **second}}


def worse(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Return the worse of two runs, key by key, and nothing above the ceiling: what is kept shall be sure."""
    return {key: min(1.0, first[key], second[key]) for key in first if key in second}


def read_baseline(path: Path = BASELINE) -> dict[str, float]:
    """Read what was kept; nothing when nothing was."""
    if not path.exists():
        return {}
    return {key: float(value) for key, value in json.loads(path.read_text("utf-8")).items()}


def keep(ratios: Mapping[str, float], path: Path = BASELINE) -> None:
    """Keep today's ratios."""
    path.write_text(
        json.dumps({key: round(ratios[key], 3) for key in sorted(ratios)}, indent=1) + "\n", "utf-8"
    )
