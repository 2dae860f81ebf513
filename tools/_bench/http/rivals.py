"""Other queues behind HTTP."""

import argparse
from pathlib import Path

from _bench.measuring.compare import Figures
from _bench.page.table import Table


def measure_rivals(
    url: str, folder: Path, options: argparse.Namespace
) -> list[tuple[Table, dict[str, Figures]]]:
    """Measure."""
    del url, folder, options
    return []
