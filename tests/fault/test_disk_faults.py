"""One process on a disk that fails, at each call that changes a file: what was told is true, nothing is lost.

The calls are those of SQLite and of cassq on the store, its log and index, and the coordination file beside
it. A trial strikes one of them, then a new process (or a neighbour that has the store open) drains the store,
now and again a day later; `cassq.verification.checker` judges what both wrote down.

A power cut is played on a record of every change and every sync: what was synced stays, the rest goes or
stays as a list of cuts says, in whole or in parts of 512 or 4096 bytes. What is left is looked at after a
restart of the machine.
"""

import errno
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from disk import (
    COMPILER,
    CUTS,
    FAIL,
    KILL,
    NAME,
    SHORT_AND_FAIL,
    SIZE,
    SYNC,
    TEAR_AND_KILL,
    WRITE,
    Fault,
    PoweredDisk,
    Trials,
    digest_of,
    has_compiler,
    read_record,
)
from reckoning import Reckoning, broken_batches, broken_letters

from cassq.verification.checker import judge
from cassq.verification.ledger import Kind, Line, read_ledger

pytestmark = pytest.mark.slow

SCENES = (
    "opening",
    "pushing",
    "popping",
    "committing",
    "rolling_back",
    "burying",
    "writing_in_bulk",
    "reaping",
    "closing_down",
)
ANY = WRITE | SYNC | SIZE | NAME
CHANGE = WRITE | SIZE | NAME

KILLED = Fault(ANY, KILL)
TORN = Fault(ANY, TEAR_AND_KILL)
SYNC_FAILS = Fault(SYNC, FAIL)
WRITES_FAIL = (
    Fault(CHANGE, FAIL),
    Fault(CHANGE, FAIL, errno.ENOSPC),
    Fault(CHANGE, SHORT_AND_FAIL, errno.ENOSPC),
)
DISK_FULL = Fault(CHANGE, FAIL, errno.ENOSPC, is_lasting=True)

#: The syncs of an opening, to that of the first commit at least.
OPENING_SYNCS = range(1, 9)

#: No scene makes so many calls.
CALLS_MAX = 2000

#: A planted bug is looked for so often, from the first call to the last.
SWEEPS_MAX = 6


@pytest.fixture(scope="module")
def trials(tmp_path_factory) -> Iterator[Trials]:
    if not has_compiler():
        pytest.fail(f"there is no {COMPILER}: the faults of a disk are made by a library in C, built here")
    made = Trials(tmp_path_factory.mktemp("trials"))
    yield made
    made.end()


def broken(lines: list[Line], answer: Any) -> list[str]:
    """Return in words what is not as it was promised, of a history and what was found after it."""
    if answer is None or "error" in answer:
        return [answer["error"] if answer else "the process that looks at it died"]
    was_there = any(line.kind is Kind.READY for line in lines if line.who != "finder")
    rules = {
        "the queue is gone": answer["is_there"] or not was_there,
        f"the file is damaged: {answer['integrity']}": answer["integrity"] == ["ok"],
        f"{answer['left']} pipes are left": answer["left"] == 0,
    }
    told = Reckoning(judge(lines), SimpleNamespace(**answer["stats"]), lines).broken()
    told += [*broken_letters(lines, "finder"), *broken_batches(lines)]
    return [*told, *(what for what, is_so in rules.items() if not is_so)]


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one."""

    calls: int | None
    lines: list[Line]
    broken: list[str]


def try_one(
    trials: Trials,
    scene: str,
    fault: Fault,
    nth: int,
    *,
    durability: str = "full",
    plant: str = "",
    is_neighbour: bool = False,
    goes_on: bool = False,
) -> Trial:
    """Play a scene in which the nth call is struck, and judge what is found after it."""
    folder = trials.new_folder()
    url = f"sqlite:///{folder}/store.db"
    ledger, found = (trials.notes / f"{folder.name}.{kind}" for kind in ("ledger", "found"))
    played = {"url": f"{url}?durability={durability}", "ledger": str(ledger), "scene": scene, "plant": plant}
    told = trials.ask(
        play={**played, "arm": fault.at(nth), "goes_on": goes_on},
        examine={"url": url, "found": str(found), "after": [str(ledger)], "scene": scene},
        is_neighbour=is_neighbour,
    )
    lines = [*read_ledger(ledger), *read_ledger(found)]
    return Trial(told["calls"], lines, broken(lines, told["found"]))


def strike_each(
    trials: Trials, scene: str, fault: Fault, numbers: Iterable[int], **how: Any
) -> Iterator[str]:
    """Strike one call after the other until a scene makes no more; yield what was broken."""
    for nth in numbers:
        trial = try_one(trials, scene, fault, nth, **how)
        yield from (f"call {nth} of {scene}: {words}; {_story(trial.lines)}" for words in trial.broken)
        if trial.calls is not None and trial.calls < nth:
            return
    raise AssertionError(f"{scene} never ends")


def finds(trials: Trials, scene: str, fault: Fault, plant: str) -> bool:
    """Tell whether a planted bug shows: which call is struck shifts with the threads, so it sweeps again."""
    sweeps = (strike_each(trials, scene, fault, every(), plant=plant) for _ in range(SWEEPS_MAX))
    return any(next(sweep, None) for sweep in sweeps)


def _story(lines: list[Line]) -> str:
    return ", ".join(f"{line.who} {line.kind} {line.message}" for line in lines)


def every(first: int = 1, step: int = 1) -> range:
    return range(first, CALLS_MAX, step)


# -- power cuts ---------------------------------------------------------------------------------------------

#: The cuts that tell most are made at each moment, of the others these many in turn.
ALWAYS = ("nothing", "everything", "all data, no names", "all names, no data")
IN_TURN = [name for name in CUTS if name not in ALWAYS]
TURNS = 2


@dataclass(frozen=True, slots=True)
class Image:
    """What a power cut may leave.

    Attributes:
        moment, cut: when it was, and what it kept.
        noted: how many lines the ledger of each process had.
        files: by name.
    """

    moment: int
    cut: str
    noted: Mapping[str, int]
    files: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Life:
    """A run from an empty folder on, of one process or two, and the record of its disk."""

    scene: str
    ledgers: Mapping[str, Path]
    record: Path
    folder: Path

    def told(self) -> dict[str, list[Line]]:
        """Return what each process told."""
        return {who: list(read_ledger(ledger)) for who, ledger in self.ledgers.items()}

    def images(self, step: int = 1) -> Iterator[Image]:
        """Yield those of every so manieth moment.

        A moment is just before a sync, where most is at stake, or just after a note, where most is promised.
        """
        disk, noted, moment = PoweredDisk(), dict[str, int](), 0
        for event, after in itertools.pairwise([*read_record(self.record), None]):
            disk.play(event)
            if event.kind == "N":
                noted = {**noted, event.path: int(event.data)}
            if event.kind == "N" or after is None or after.kind == "S":
                moment += 1
                if moment % step == 0:
                    turn = moment // step
                    for cut in (*ALWAYS, *(IN_TURN[(turn * TURNS + n) % len(IN_TURN)] for n in range(TURNS))):
                        yield Image(moment, cut, noted, disk.after(CUTS[cut]))


def record_life(
    trials: Trials, durability: str, plant: str = "", scene: str = "living", **more: object
) -> Life:
    """Record a run of one process."""
    return _record(trials, durability, scene, {"actor": plant}, **more)


def record_two(trials: Trials, plant: str = "") -> Life:
    """Record a run of two processes at once, of which the second has a plant."""
    return _record(trials, "full", "sharing", {"actor": "", "other": plant})


def _record(trials: Trials, durability: str, scene: str, plants: Mapping[str, str], **more: object) -> Life:
    folder = trials.new_folder()
    record = trials.notes / f"{folder.name}.record"
    ledgers = {who: trials.notes / f"{folder.name}.{who}" for who in plants}
    shared = {
        "url": f"sqlite:///{folder}/store.db?durability={durability}",
        "scene": scene,
        "record": str(record),
        **more,
    }
    plays = [
        {**shared, "who": who, "plant": plant, "ledger": str(ledgers[who])} for who, plant in plants.items()
    ]
    trials.ask(**dict(zip(("play", "beside"), plays, strict=False)))
    return Life(scene, ledgers, record, folder)


class Survey:
    """What is found in images of a life, each looked at once."""

    def __init__(self, trials: Trials, life: Life) -> None:
        self._trials = trials
        self._life = life
        self._known: dict[bytes, tuple[Any, list[Line]]] = {}

    def look(self, image: Image) -> tuple[Any, list[Line]]:
        key = digest_of(image.files)
        if key not in self._known:
            folder = self._trials.new_folder()
            for name, content in image.files.items():
                (folder / name).write_bytes(content)
            answer, found = self._trials.examine(folder, self._life.scene, self._life.ledgers.values())
            self._known[key] = (answer, list(read_ledger(found)))
        return self._known[key]


def cut_power(trials: Trials, life: Life, step: int = 1) -> Iterator[str]:
    """Cut the power of a run whose commits wait for the disk at its moments; yield what was broken."""
    survey, told = Survey(trials, life), life.told()
    for image in life.images(step):
        answer, after = survey.look(image)
        lines = [*_until(told, image), *after]
        for words in broken(lines, answer):
            yield f"moment {image.moment}, {image.cut}: {words}; {_story(lines)}"


def _until(told: Mapping[str, list[Line]], image: Image) -> list[Line]:
    """Return what was told before the power went."""
    return [line for who, lines in told.items() for line in lines[: image.noted.get(who, 0)]]


def cut_power_of_normal(trials: Trials, life: Life) -> Iterator[str]:
    """Cut the power of a run whose commits do not wait; yield where the store is of no moment of the past."""
    survey, told = Survey(trials, life), life.told()
    for image in life.images(step=2):
        answer, after = survey.look(image)
        before = _until(told, image)
        if all(broken([*before[:noted], *after], answer) for noted in range(len(before), -1, -1)):
            yield f"moment {image.moment}, {image.cut}: {answer}; {_story([*before, *after])}"


# -- the promises -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", SCENES)
def test_a_process_that_is_killed_between_two_calls_leaves_what_it_was_told(trials, scene):
    assert not list(strike_each(trials, scene, KILLED, every()))


@pytest.mark.parametrize("scene", SCENES[1:])
def test_a_neighbour_goes_on_with_what_a_killed_process_left(trials, scene):
    assert not list(strike_each(trials, scene, KILLED, every(1, 5), is_neighbour=True))


@pytest.mark.parametrize("scene", ["pushing", "committing"])
def test_a_write_that_a_kill_cuts_short_takes_nothing_with_it(trials, scene):
    assert not list(strike_each(trials, scene, TORN, every(1, 2)))


@pytest.mark.parametrize("scene", ["pushing", "committing"])
def test_a_killed_process_loses_nothing_though_its_commits_do_not_wait_for_the_disk(trials, scene):
    assert not list(strike_each(trials, scene, KILLED, every(2, 2), durability="normal"))


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("scene", SCENES)
def test_what_is_told_is_true_when_a_sync_fails(trials, scene, goes_on):
    assert not list(strike_each(trials, scene, SYNC_FAILS, every(), goes_on=goes_on))


@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("scene", SCENES)
def test_what_is_told_is_true_when_a_write_fails(trials, scene, first):
    fault = WRITES_FAIL[first - 1]
    step = 6 if scene in {"burying", "writing_in_bulk", "reaping"} else 3
    assert not list(strike_each(trials, scene, fault, every(first, step), goes_on=first != 2))


@pytest.mark.parametrize(("scene", "nth"), [("opening", 1), ("opening", 40), ("pushing", 2)])
def test_a_store_goes_on_after_its_disk_was_full(trials, scene, nth):
    trial = try_one(trials, scene, DISK_FULL, nth, goes_on=True)
    assert not trial.broken
    assert trial.calls > nth


def test_a_record_has_every_change_of_every_file(trials):
    life = record_life(trials, "full")
    last = [image.files for image in life.images() if image.cut == "everything"][-1]
    assert last == {
        each.name: each.read_bytes() for each in life.folder.iterdir() if not each.name.endswith("-shm")
    }


def test_a_power_cut_takes_nothing_that_was_acknowledged(trials):
    assert not list(cut_power(trials, record_life(trials, "full")))


def test_a_power_cut_takes_nothing_that_either_of_two_processes_was_told(trials):
    assert not list(cut_power(trials, record_two(trials), step=3))


@pytest.mark.parametrize("scene", ["burying", "writing_in_bulk", "reaping"])
def test_a_power_cut_takes_neither_dead_letters_nor_bulk_writes_nor_totals(trials, scene):
    assert not list(cut_power(trials, record_life(trials, "full", scene=scene), step=3))


@pytest.mark.parametrize("nth", OPENING_SYNCS)
def test_a_power_cut_takes_nothing_of_a_store_that_went_on_after_a_sync_that_failed(trials, nth):
    # Where the log cannot be made SQLite stays with a rollback journal, and does not tell.
    life = record_life(trials, "full", scene="opening", arm=SYNC_FAILS.at(nth))
    assert not list(cut_power(trials, life, step=2))


def test_a_store_whose_folder_cannot_be_synced_is_not_opened(trials):
    tried = [try_one(trials, "opening", SYNC_FAILS, nth) for nth in OPENING_SYNCS]
    refused = [
        each for each in tried if any("its folder cannot be synced" in line.words for line in each.lines)
    ]
    assert refused
    assert not any(line.kind is Kind.READY for each in refused for line in each.lines if line.who == "actor")


def test_a_power_cut_takes_the_last_moments_at_most_where_commits_do_not_wait_for_the_disk(trials):
    assert not list(cut_power_of_normal(trials, record_life(trials, "normal")))


# -- and that they can be seen to be broken -----------------------------------------------------------------


def test_a_power_cut_finds_commits_that_do_not_wait_for_the_disk(trials):
    assert next(cut_power(trials, record_life(trials, "full", "a commit does not wait for the disk")), None)


def test_a_power_cut_finds_that_one_of_two_processes_does_not_wait_for_the_disk(trials):
    life = record_two(trials, "a commit does not wait for the disk")
    assert next(cut_power(trials, life), None)


def test_a_power_cut_finds_that_nothing_waits_for_the_disk(trials):
    assert next(
        cut_power_of_normal(trials, record_life(trials, "normal", "nothing waits for the disk")), None
    )


def test_a_power_cut_finds_a_log_whose_folder_only_sqlite_syncs(trials):
    plant = "the folder of the log is left to SQLite"
    lives = (
        record_life(trials, "full", plant, scene="opening", arm=SYNC_FAILS.at(nth)) for nth in OPENING_SYNCS
    )
    assert any(next(cut_power(trials, life), None) for life in lives)


def test_a_kill_finds_a_push_that_is_acknowledged_before_it_is_written(trials):
    plant = "a push is acknowledged before it is written"
    assert finds(trials, "pushing", KILLED, plant)


def test_a_kill_finds_a_dead_letter_that_is_removed_before_it_is_pushed_again(trials):
    plant = "a dead letter is removed before it is pushed again"
    assert finds(trials, "burying", KILLED, plant)


def test_a_kill_finds_a_bulk_write_that_nobody_decided(trials):
    plant = "a bulk write is published pipe by pipe, and never decided"
    assert finds(trials, "writing_in_bulk", KILLED, plant)


def test_a_failing_sync_finds_a_commit_that_is_believed_though_it_failed(trials):
    plant = "a commit that failed is taken for one that was made"
    assert finds(trials, "committing", SYNC_FAILS, plant)
