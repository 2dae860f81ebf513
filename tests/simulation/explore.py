"""Runs many histories, on every core, and says which seeds failed.

Owns the workers and what they report. Each worker is a process of its own, so that a mutant can be planted in
it before the library is imported.
"""

import argparse
import contextlib
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fork_server import ForkServer

#: A worker reports after so many histories.
REPORT = 25

#: Whoever waits for a server, or is one, goes first.
GIVING_WAY = 10

#: Beside other tests one processor has to do, for a search as for a test.
JOBS = 1 if "PYTEST_XDIST_WORKER" in os.environ else None


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that broke a promise, and which."""

    seed: int
    broken: list[str]


@dataclass(slots=True)
class Tally:
    """What many histories came to."""

    histories: int = 0
    requests: int = 0
    virtual_s: float = 0.0
    failures: list[Failure] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.failures = []

    def count(self, line: dict) -> None:  # type: ignore[type-arg]
        """Count what a worker reported."""
        if "seed" in line:
            self.failures.append(Failure(line["seed"], line["broken"]))
        else:
            self.histories += line["histories"]
            self.requests += line["requests"]
            self.virtual_s += line["virtual_s"]


def explore(
    first: int,
    count: int | None,
    *,
    jobs: int | None = None,
    mutant: str = "",
    about: str = "",
    seconds: float | None = None,
    failures_max: int = 5,
    progress: Callable[[Tally], None] = lambda _tally: None,
) -> Tally:
    """Run `count` histories from seed `first` on, or as many as fit into `seconds`.

    Stops after `failures_max` seeds that failed.

    Args:
        about: "topics" for histories of a topic; "relays" for those with a queue that is subscribed;
            "journals" where that keeps a journal.
    """
    jobs = jobs or os.cpu_count() or 1
    tally = Tally()
    end_seed = -1 if count is None else first + count
    workers = [_start(first + place, jobs, end_seed, mutant, about) for place in range(jobs)]
    end = None if seconds is None else time.monotonic() + seconds
    try:
        for line in _lines(workers):
            tally.count(line)
            progress(tally)
            if len(tally.failures) >= failures_max or (end is not None and time.monotonic() > end):
                break
    finally:
        for worker in workers:
            worker.terminate()
            worker.communicate()
    tally.failures.sort(key=lambda failure: failure.seed)
    return tally


def explore_one(seed: int, mutant: str, server: "ForkServer") -> Tally:
    """Run the history of one seed, with the mutant planted."""
    ended = server.run("explore", _words(seed, 1, seed + 1, mutant))
    ended.check_returncode()
    tally = Tally()
    for line in ended.stdout.splitlines():
        tally.count(json.loads(line))
    return tally


def _start(first: int, step: int, end: int, mutant: str, about: str) -> "subprocess.Popen[str]":
    words = [sys.executable, __file__, *_words(first, step, end, mutant), "--about", about]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def _words(first: int, step: int, end: int, mutant: str) -> list[str]:
    return [str(first), str(step), str(end), "--mutant", mutant]


def _lines(workers: "list[subprocess.Popen[str]]") -> Iterator[dict]:  # type: ignore[type-arg]
    import selectors

    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        while selector.get_map():
            for key, _ in selector.select():
                text = key.fileobj.readline()  # type: ignore[union-attr]
                if text:
                    yield json.loads(text)
                    continue
                selector.unregister(key.fileobj)
                if key.data.wait() != 0:
                    raise RuntimeError("a worker of the simulation ended in an error; its words are above")


def _work(first: int, step: int, end: int, mutant: str, about: str) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    import mutants

    if mutant:
        mutants.plant(mutants.find(mutant))
    about = mutants.find(mutant).about if mutant else about
    run = runner(about)

    if mutant and mutants.find(mutant).about == "run readers":
        import reader_actors  # noqa: F401 - few histories need Spark, so that is imported late
    if mutant:
        mutants.check_planted(mutants.find(mutant))
    gc.disable()  # collecting now and then costs less
    histories = requests = 0
    virtual_s = 0.0
    seed = first
    while end < 0 or seed < end:
        outcome = run(seed)
        histories, requests, virtual_s = (
            histories + 1,
            requests + outcome.requests,
            virtual_s + outcome.seconds,
        )
        if outcome.broken:
            print(json.dumps({"seed": seed, "broken": outcome.broken[:5]}), flush=True)
        if histories == REPORT:
            _report(histories, requests, virtual_s)
            histories = requests = 0
            virtual_s = 0.0
            gc.collect()
        seed += step
    _report(histories, requests, virtual_s)


def runner(about: str, *, is_traced: bool = False) -> Callable[[int], Any]:
    """Return what runs the history of a seed, of a theme; it imports the library."""
    if about in {"topics", "relays", "journals"}:
        from topic_history import draw_topic, run_topic

        has = {"has_relays": about == "relays", "has_journal": about == "journals"}
        return lambda seed: run_topic(draw_topic(seed, **has), is_traced=is_traced)
    import history
    from plan import draw

    return lambda seed: history.run(draw(seed, about), is_traced=is_traced)


def _report(histories: int, requests: int, virtual_s: float) -> None:
    print(json.dumps({"histories": histories, "requests": requests, "virtual_s": virtual_s}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("step", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--mutant", default="")
    parser.add_argument("--about", default="")
    options = parser.parse_args()
    os.nice(GIVING_WAY)
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        _work(options.first, options.step, options.end, options.mutant, options.about)
