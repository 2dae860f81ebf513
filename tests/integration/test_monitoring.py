"""What is exported, alerted on and drawn is the same, and Prometheus takes it.

promtool comes with Prometheus (Debian: `apt-get install prometheus`). Where it is missing, and nowhere else,
tests of this file are skipped.
"""

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

import cassq
from cassq.metrics.exporter import StoreFigures
from cassq.metrics.prometheus import PrometheusObserver
from cassq.runtime.clock import SystemClock

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "cassq.json"
CASES = Path(__file__).parent / "alert_cases.yml"


@pytest.fixture
def promtool():
    """Run promtool; fail where it complains."""
    program = shutil.which("promtool")
    if not program:
        pytest.skip("there is no promtool on PATH")

    def run(*words, stdin=""):
        ended = subprocess.run(
            [program, *map(str, words)], input=stdin, capture_output=True, text=True, timeout=120, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr

    return run


@pytest.fixture(scope="module")
def registries():
    """Return those of a program and of an exporter, after a run in which everything happens once."""
    program, exporter = CollectorRegistry(), CollectorRegistry()
    observer = PrometheusObserver(program)
    figures = StoreFigures(SystemClock(), every_s=15, queues_max=500)
    exporter.register(figures)
    with cassq.connect("memory:", observer=observer) as store:
        observer.watch(cassq.Worker(store))
        queue = store.queue("orders")
        queue.push_many([b"x"] * 3)
        with pytest.raises(cassq.InvalidOptionError):
            queue.push("no bytes")
        with queue.popper() as popper:
            popper.pop(timeout=60).commit()
            popper.pop(timeout=60).reject("no customer")
        figures.read(store)
    observer.note(cassq.StorageCalled("append", 8.0, "storage-unavailable"))  # as of a database that is away
    return program, exporter


@pytest.fixture(scope="module")
def exported(registries):
    """Return what these show."""
    return [generate_latest(each).decode() for each in registries]


def names_in(text):
    return set(re.findall(r"\bcassq_\w+", text))


def drawings():
    board = json.loads(DASHBOARD.read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel.get("targets", ()))
    yield from (each["definition"] for each in board["templating"]["list"] if "definition" in each)


def test_each_metric_that_the_dashboard_or_an_alert_names_is_exported(exported):
    shown = {
        sample.name
        for text in exported
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    rules = set().union(*map(names_in, re.findall(r"expr:.*(?:\n {10}.*)*", ALERTS.read_text())))
    assert len(rules) >= 7
    drawn = set().union(*map(names_in, drawings()))
    assert rules | drawn <= shown
    left = {name for name in shown if not name.endswith(("_bucket", "_count", "_sum", "_created"))}
    assert left <= rules | drawn, "nobody looks at these"


def test_no_metric_is_told_twice(exported):
    told = Counter(re.findall(r"^# TYPE (\S+)", "".join(exported), re.MULTILINE))
    assert {name for name, count in told.items() if count > 1} == set()


def test_the_form_that_prometheus_asks_for_first_is_sound(registries):
    """OpenMetrics: there a counter has no suffix in its name, so that it may clash with a gauge."""
    for registry in registries:
        families = [
            each.name for each in openmetrics_families(openmetrics.generate_latest(registry).decode())
        ]
        assert len(families) == len(set(families))


def test_prometheus_takes_the_metrics(exported, promtool):
    for text in exported:
        promtool("check", "metrics", stdin=text)


def test_prometheus_takes_the_alerts(promtool):
    promtool("check", "rules", ALERTS)


def test_each_alert_fires_on_what_it_is_for_and_on_nothing_else(promtool):
    alerts = set(re.findall(r"alert: (\w+)", ALERTS.read_text()))
    assert alerts <= set(re.findall(r"alertname: (\w+)", CASES.read_text()))
    promtool("test", "rules", CASES)


def test_the_dashboard_has_an_id_of_its_own_for_each_panel():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == [
        "Overview",
        "Queue",
        "Storage and workers",
    ]
