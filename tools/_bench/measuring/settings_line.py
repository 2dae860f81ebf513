"""The line that is told before any figure: what it was measured on, and with which settings.

Owns what every command tells of machine and versions; each adds what is its own. Refuses to guess: what is
not known is told as unknown.
"""

import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from _bench.page.table import Report


def machine() -> dict[str, str]:
    """Return what is to be told of this machine."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": f"{len(os.sched_getaffinity(0))} (clients and servers share them)",
        "processor": _processor(),
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "Python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def tell_settings(*parts: Mapping[str, str]) -> dict[str, str]:
    """Join what is to be told, print it as one line, and return it for the report."""
    joined: dict[str, str] = machine()
    for part in parts:
        joined.update(part)
    print(Report("", joined, ()).settings_line(), flush=True)
    print()
    sys.stdout.flush()
    return joined
