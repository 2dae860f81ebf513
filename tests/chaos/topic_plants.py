"""Bugs that are planted in every worker of a topic, so that it is seen that the judge finds them.

Owns the patches. What must not break: whoever plants one has imported nothing of the library yet.
"""

import os

from planting import Edit, Mutant, plant, planted

#: What names the bug that a worker plants; none where it is empty.
VARIABLE = "CASSQ_CHAOS_PLANT"
PLANT = os.environ.get(VARIABLE, "")

_HELD = "cassq.topics.held_partition"
_READER = "cassq.topics.log_reader"
_RELAYED = "cassq.topics.relayed_partition"
_PIPES = "cassq.topics.relayed_pipe"

PLANTS = (
    Mutant(
        "a member commits in the epoch of whoever has the partition",
        (
            Edit(
                _HELD,
                "        if found is None or (found.epoch, found.owner) != (self.epoch, self._member):\n",
                "        if found is None:\n",
            ),
            Edit(
                "cassq.topics.consumer",
                "                if held.is_lost or not self._share.has(held):\n",
                "                if held.is_lost:\n",
            ),
        ),
    ),
    planted(
        "a reader steps over what an answer lacks",
        _READER,
        "        for batch in batches:\n"
        "            if not batch.first <= self.next < batch.next:\n"
        "                break\n",
        "        for batch in [each for each in batches if each.first % 20 or each is batches[-1]]:\n"
        "            self.next = max(self.next, batch.first)\n",
    ),
    Mutant(
        "a relay fills a pipe that no progress names",
        (
            Edit(_RELAYED, "self._write(following, filling.pipe)", "self._write(following, None)"),
            Edit(_PIPES, ", Head(op=pipe), named_by=key)", ", Head(op=pipe))"),
        ),
    ),
    planted(
        "a number is published twice",
        "cassq.topics.log_end",
        "                if row and each.number <= row.number:\n",
        "                if row and each.number < row.number:\n",
    ),
)


def plant_bug(name: str) -> None:
    """Patch the library, as it is imported."""
    plant(next(each for each in PLANTS if each.name == name))
