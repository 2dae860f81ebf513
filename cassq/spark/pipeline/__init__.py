"""Ready-made work on queues as frames: roll up, archive and restore, audit, profile, tell what happened.

Each is a plain function of frames, so that it fits into a job of your own; `cassq pipeline NAME` runs it on a
store. Nothing here collects messages on the driver.
"""

from cassq.spark.pipeline.archive import ArchiveRun, archive, find_archived, read_archive, restore
from cassq.spark.pipeline.audit import audit, lines_of_ledgers, lines_of_pushes, lines_of_snapshot
from cassq.spark.pipeline.history import history
from cassq.spark.pipeline.journal_index import compact, start_index
from cassq.spark.pipeline.lookup import find_in_index
from cassq.spark.pipeline.profile import Profile, profile
from cassq.spark.pipeline.report import render
from cassq.spark.pipeline.rollup import keep_rollup, rollup

__all__ = [
    "ArchiveRun",
    "Profile",
    "archive",
    "audit",
    "compact",
    "find_archived",
    "find_in_index",
    "history",
    "keep_rollup",
    "lines_of_ledgers",
    "lines_of_pushes",
    "lines_of_snapshot",
    "profile",
    "read_archive",
    "render",
    "restore",
    "rollup",
    "start_index",
]
