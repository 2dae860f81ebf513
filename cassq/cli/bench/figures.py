"""What `cassq bench` found, as a table and as JSON.

Owns units and percentiles. What must not break: a percentile is one of the samples, never an estimate.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import click

from cassq.cli.bench.messages import Plan
from cassq.cli.output import print_table
from cassq.limits import MIB

#: The percentiles that are told; the last one is the longest of all.
PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}


@dataclass(frozen=True, slots=True)
class Throughput:
    """So many messages in so many seconds."""

    messages: int
    seconds: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / max(self.seconds, 1e-6)


class Latencies:
    """How long each message was on its way.

    Args:
        samples_s: at least one, in seconds, in any order.
    """

    def __init__(self, samples_s: Iterable[float]) -> None:
        self._sorted_s = sorted(samples_s)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._sorted_s)

    def at_ms(self, percent: int) -> float:
        """Return the smallest sample that `percent` per cent of all do not exceed, in milliseconds."""
        rank = max(1, math.ceil(percent * self.count / 100))
        return self._sorted_s[rank - 1] * 1000


@dataclass(frozen=True, slots=True)
class Figures:
    """What a whole run found."""

    push: Throughput
    pop: Throughput
    latencies: Latencies

    def to_json(self, plan: Plan) -> dict[str, object]:
        """Return them as JSON values, with the units in the names."""
        rates = {
            what: {
                "messages": each.messages,
                "seconds": each.seconds,
                "messages_per_second": each.rate,
                "bytes_per_second": each.rate * plan.body_bytes,
            }
            for what, each in (("push", self.push), ("pop_and_commit", self.pop))
        }
        flow = {
            "messages": self.latencies.count,
            "seconds": plan.seconds,
            "messages_per_second": plan.rate,
            "latency_ms": {name: self.latencies.at_ms(percent) for name, percent in PERCENTILES.items()},
        }
        return {**rates, "push_to_pop": flow}

    def print(self, plan: Plan) -> None:
        """Print them for people."""
        print_table(
            [
                {
                    "": what,
                    "messages": each.messages,
                    "seconds": f"{each.seconds:.2f}",
                    "messages/s": f"{each.rate:,.0f}",
                    "MiB/s": f"{each.rate * plan.body_bytes / MIB:,.1f}",
                }
                for what, each in (("push", self.push), ("pop + commit", self.pop))
            ]
        )
        click.echo()
        told = {f"{name} ms": f"{self.latencies.at_ms(each):,.2f}" for name, each in PERCENTILES.items()}
        print_table([{"push to pop": f"{plan.rate}/s", "messages": self.latencies.count, **told}])
