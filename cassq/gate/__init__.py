"""Who may do what through a door: applications, their keys, rights, addresses and rates.

Owns these decisions for every door that others reach over a network. Knows no protocol of such a door.
"""

from cassq.gate.addresses import Origin, origin_of, to_networks
from cassq.gate.applications import Application, Applications, Right
from cassq.gate.gate import Asked, Gate

__all__ = [
    "Application",
    "Applications",
    "Asked",
    "Gate",
    "Origin",
    "Right",
    "origin_of",
    "to_networks",
]
