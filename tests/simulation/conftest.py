"""The simulation's modules import each other by name, and its tests those of the storage contract."""

import sys
from pathlib import Path

_HERE = Path(__file__).parent
for folder in (_HERE, _HERE.parent / "contract"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
