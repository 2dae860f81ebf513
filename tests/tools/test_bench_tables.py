import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from _bench.errors import BenchError
from _bench.measuring.compare import Figures
from _bench.page import page
from _bench.page.table import Report, Table, read_report, tell_figures, tell_number, tell_ratio

TABLE = Table("Rates", ("", "messages"), [("push", "231 k/s"), ("pop, grouped", "9.10 k/s")])
REPORT = Report("throughput", {"cassq": "0.1.0", "cores": "2"}, [TABLE], {"push ours": [231000.0]})


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (231_400, "231 k"),
        (4071.4, "4071"),
        (30, "30"),
        (91.23, "91.2"),
        (0.6128, "0.613"),
        (1_234_567, "1.23 M"),
        (0.0, "0"),
    ],
)
def test_a_number_is_told_with_three_digits_that_matter(value, told):
    assert tell_number(value) == told


def test_figures_are_told_as_median_and_range():
    figures = Figures((210_000.0, 244_000.0, 231_000.0))

    assert tell_figures(figures, "/s") == "231 k/s (210 k to 244 k)"
    assert tell_ratio(Figures((0.64, 0.8, 0.71))) == "0.71 (0.64 to 0.80)"


def test_a_figure_of_one_round_has_no_range():
    assert tell_figures(Figures((12.0,)), " ms") == "12.0 ms"
    assert tell_ratio(Figures((0.5,))) == "0.50"


def test_the_columns_of_a_table_line_up():
    assert TABLE.text().splitlines() == [
        "|              | messages |",
        "| ------------ | -------- |",
        "| push         | 231 k/s  |",
        "| pop, grouped | 9.10 k/s |",
    ]


def test_a_report_that_was_written_is_read_again(tmp_path, capsys):
    path = tmp_path / "kept" / "throughput.json"

    REPORT.tell(path)

    kept = read_report(path)
    assert kept.text() == REPORT.text()
    assert kept.settings_line() == "cassq 0.1.0; cores 2"
    assert kept.raw == {"push ours": [231000.0]}
    assert "pop, grouped" in capsys.readouterr().out


@pytest.fixture
def docs(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    REPORT.tell(tmp_path / "benchmarks" / "throughput.json")
    places = "<!-- bench throughput: begin -->\nold\n<!-- bench throughput: end -->"
    (tmp_path / "benchmarks.md").write_text(f"# Title\n\n{places}\n\nWords.\n")
    return tmp_path


def test_the_tables_are_put_into_their_places_and_the_words_stay(docs):
    # Given a page that is behind
    assert page.main(["--docs", str(docs), "--check"]) == 1

    # When it is made
    assert page.main(["--docs", str(docs)]) == 0

    # Then it has the table in its place, once, and making it again changes nothing
    text = (docs / "benchmarks.md").read_text()
    assert text.startswith("# Title\n")
    assert text.endswith("\nWords.\n")
    assert "old" not in text
    assert text.count(TABLE.text()) == 1
    assert page.main(["--docs", str(docs), "--check"]) == 0


def test_a_file_without_a_place_in_the_page_is_an_error(docs):
    REPORT.tell(docs / "benchmarks" / "flat.json")

    with pytest.raises(BenchError, match="no place for flat"):
        page.main(["--docs", str(docs)])
