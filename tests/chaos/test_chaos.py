"""The short form of `tools/chaos` on a ring of its own; how it measures; and that its page tells the same."""

import subprocess
import sys
from pathlib import Path

import pytest
from chaos_report import Report, Result, read_report
from firewall import rules_for_group, to_server
from pace import Course, find_dips, measure, rates
from topic_report import TopicReport, TopicResult

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("chaos.py")
SHORT_S = 1800


def run(*arguments, seconds=60):
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def steady(rate, start, end):
    return [start + number / rate for number in range(int((end - start) * rate))]


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.service
def test_nothing_is_lost_or_repeated_when_a_popper_a_node_and_the_leader_are_killed(tmp_path):
    # Given a ring of its own, which the command starts
    results = tmp_path / "results.json"
    # When the three faults of the short form befall it
    done = run("--short", "--json", str(results), "--evidence", str(tmp_path), seconds=SHORT_S)
    # Then every promise was kept
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    told = read_report(results).results
    assert [each.fault for each in told] == ["popper-killed", "node-killed", "leader-killed"]
    for each in told:
        assert not each.skipped
        assert each.messages > 1000
        assert (each.lost, each.unexplained, each.reordered, each.broken) == (0, 0, 0, [])


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.service
def test_nothing_of_a_topic_is_lost_or_twice_whatever_is_killed_and_frozen(tmp_path):
    # Given a ring of its own, and a seed of its own, which the report tells
    results = tmp_path / "results.json"
    # When many kinds of strikes befall a topic
    words = ("--topics", "--short", "--mixed", "0.75", "--json", str(results), "--evidence", str(tmp_path))
    done = run(*words, seconds=SHORT_S)
    # Then every promise was kept
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    (mixed,) = read_report(results, TopicReport).results
    assert mixed.messages > 500
    assert sum(mixed.struck.values()) > 1
    assert not any(mixed.findings.values())


@pytest.mark.parametrize(
    ("file", "kind"), [("reliability.json", Report), ("reliability-topics.json", TopicReport)]
)
def test_the_page_shows_the_table_of_the_run_that_is_kept_beside_it(file, kind):
    page = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    kept = read_report(ROOT / "docs" / file, kind)
    assert kept.head() in page
    assert kept.table() in page
    assert kept.complaints() == []


def test_the_table_of_a_report_can_be_made_again(tmp_path):
    # Given a report on a file
    result = Result(
        "popper-killed", "SIGKILL", messages=7, explained={"dead holder": 2}, back_s=1.5, goal_s=7.0
    )
    path = tmp_path / "report.json"
    report = Report({"cassq": "0"}, [result, Result("node-cut", "cut", skipped="needs root")])
    report.write(path)
    # When it is asked for, then it prints the same table
    assert run("--report", str(path)).stdout.strip() == report.table()
    assert "2 dead holder" in report.table()
    assert "skipped: needs root" in report.table()


def test_the_table_is_put_into_its_place_of_a_page(tmp_path):
    # Given a page with an old table
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- chaos: begin -->\nan earlier run\n<!-- chaos: end -->\n\nMore.\n")
    # When the kept report is put into it
    kept = read_report(ROOT / "docs" / "reliability.json")
    kept.put_into(page)
    # Then the old one is gone, and nothing else
    text = page.read_text()
    assert kept.table() in text
    assert "an earlier run" not in text
    assert text.startswith("# Page\n")
    assert text.endswith("<!-- chaos: end -->\n\nMore.\n")


def test_the_table_of_a_report_on_a_topic_can_be_made_again(tmp_path):
    # Given a report on a topic, with something lost
    result = TopicResult(
        "mixed", "all", findings={"lost": 3}, again={"dead member": 2}, struck={"relays-killed": 4}
    )
    path = tmp_path / "report.json"
    report = TopicReport({"cassq": "0"}, [result, TopicResult("node-cut", "cut", skipped="needs root")])
    report.write(path)
    # When it is asked for, then it prints the same table
    assert run("--topics", "--report", str(path)).stdout.strip() == report.table()
    assert "| `mixed`: all (4 relays-killed) | 0 | 3 | 0 |" in report.table()
    assert "3 lost" in report.summary()


def test_a_kind_that_does_not_exist_is_refused():
    done = run("--kinds", "earthquake")
    assert done.returncode == 64
    assert "earthquake" in done.stderr


def test_every_kind_is_listed_with_what_it_needs():
    listed = run("--list").stdout
    assert "node-cut" in listed
    assert "(needs iptables, root)" in listed
    assert len(listed.splitlines()) >= 12
    assert "members-expelled" in run("--topics", "--list").stdout


def test_rates_are_told_by_half_seconds():
    assert rates(steady(100, 10.0, 12.0), 10.0, 12.0) == [100, 100, 100, 100]


def test_two_slow_windows_are_no_dip():
    assert find_dips([100, 10, 20, 100, 10, 20, 30, 100], 90) == [(4, 7)]


def test_a_dip_that_does_not_end_has_no_end():
    assert find_dips([100, 10, 10, 10], 90) == [(1, None)]


def test_the_time_until_the_rate_is_back_counts_from_the_blow():
    # Given commits that stop for three seconds, half a second after the blow
    commits = [*steady(100, 0.0, 10.5), *steady(100, 13.5, 20.0)]
    # When they are measured
    pace = measure(commits, Course(0.0, 20.0, [10.0]), goal_s=7.0)
    # Then it took from the blow until they went on
    assert pace.before == 100
    assert pace.back_s == pytest.approx(3.5)
    assert pace.gap_s == pytest.approx(3.0, abs=0.05)


def test_a_rate_that_does_not_come_back_is_told_as_such():
    pace = measure(steady(100, 0.0, 10.0), Course(0.0, 20.0, [10.0]), goal_s=7.0)
    assert pace.back_s is None


def test_a_lull_does_not_count_but_what_is_slow_after_it_does():
    # Given nothing while all are frozen, and two seconds more until commits go on
    commits = [*steady(100, 0.0, 10.0), *steady(100, 16.0, 22.0)]
    # When they are measured, then those seconds count, from the end of the lull
    pace = measure(commits, Course(0.0, 22.0, [10.0, 14.0], [(10.0, 14.0)]), goal_s=7.0)
    assert pace.back_s == pytest.approx(2.0)


def test_a_dip_long_after_the_goal_is_not_the_blow_s():
    commits = [*steady(100, 0.0, 20.0), *steady(100, 22.0, 30.0)]
    assert measure(commits, Course(0.0, 30.0, [10.0]), goal_s=7.0).back_s == 0.0


def test_two_cuts_of_one_group_mark_connections_differently():
    everything, one = (rules_for_group(7, to) for to in ((), to_server("127.0.0.2", 9042)))
    assert everything[0][-1] != one[0][-1]
    assert everything[2][-3] == everything[0][-1]
