"""Ready-made work on queues as frames: roll up, archive and restore, audit, profile.

Each is a plain function of frames, so that it fits into a job of your own; `cassq pipeline NAME` runs it on a
store. Nothing here collects messages on the driver.
"""

from cassq.spark.pipeline.archive import ArchiveRun, archive, find_archived, read_archive, restore
from cassq.spark.pipeline.audit import audit, lines_of_ledgers, lines_of_pushes, lines_of_snapshot
from cassq.spark.pipeline.profile import Profile, profile
from cassq.spark.pipeline.report import render
from cassq.spark.pipeline.rollup import keep_rollup, rollup

__all__ = [
    "ArchiveRun",
    "Profile",
    "archive",
    "audit",
    "find_archived",
    "keep_rollup",
    "lines_of_ledgers",
    "lines_of_pushes",
    "lines_of_snapshot",
    "profile",
    "read_archive",
    "render",
    "restore",
    "rollup",
]
