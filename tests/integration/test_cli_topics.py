"""`cassq topic …` over the embedded store: every command, its output, its exit code, its signals."""

import signal
from datetime import UTC, datetime, timedelta

import pytest
from command_line import CommandLine, finish
from support.patience import until

import cassq

#: What is told of a message.
MESSAGE = {"partition", "offset", "body", "encoding", "headers", "published_at", "type", "key"}


@pytest.fixture
def cli(tmp_path):
    return CommandLine(f"sqlite:///{tmp_path}/store.db")


@pytest.fixture
def events(cli):
    """A topic of one partition, with three messages."""
    cli.ok("topic", "create", "events")
    cli.ok("topic", "publish", "events", "--lines", stdin=b"one\ntwo\nthree\n")
    return cli


@pytest.fixture
def spread(cli):
    """A topic of three partitions, with two messages in each."""
    cli.ok("topic", "create", "spread", "--partitions", "3")
    for partition in range(3):
        cli.ok("topic", "publish", "spread", "--lines", "--partition", partition, stdin=b"one\ntwo\n")
    return cli


def places(cli, topic, group):
    """Return where a group is, by partition."""
    return {
        each["partition"]: each["next"]
        for each in cli.json("topic", "groups", topic)
        if each["group"] == group
    }


class TestTopic:
    def test_is_created_with_every_setting(self, cli):
        made = cli.json(
            *("topic", "create", "events", "--partitions", "4", "--retention", "7d"),
            *("--retention-bytes", "1GiB", "--segment-bytes", "1MiB", "--body-bytes-max", "64KiB"),
            *("--clock-skew-max", "1s"),
        )

        assert made == {
            "topic": "events",
            "settings": {
                "partitions": 4,
                "retention_ms": 7 * 86_400_000,
                "retention_bytes": 1 << 30,
                "segment_bytes": 1 << 20,
                "body_bytes_max": 64 << 10,
                "clock_skew_max_ms": 1000,
            },
        }

    def test_is_created_in_words_on_stderr(self, cli):
        done = cli.run("topic", "create", "events")

        assert (done.returncode, done.stdout) == (0, "")
        assert "topic events stands in sqlite:///" in done.stderr

    def test_may_be_created_again_with_the_same_settings_only(self, cli):
        cli.ok("topic", "create", "events", "--retention", "7d")
        assert cli.run("topic", "create", "events", "--retention", "7d").returncode == 0

        refused = cli.run("topic", "create", "events", "--retention", "8d")

        assert refused.returncode == 64
        assert "retention=604800s, not 691200s" in refused.stderr
        assert "cassq topic alter events" in refused.stderr

    @pytest.mark.parametrize(
        ("option", "value", "told"),
        [
            ("--partitions", "2000", "partitions=2000 is out of range: 1 to 1024"),
            ("--segment-bytes", "1", "segment_bytes=1 is out of range: 1024 to 67108864"),
            ("--retention", "5s", "retention=5s is shorter than the age of a segment: 60s or more, or 0s"),
        ],
    )
    def test_refuses_a_setting_with_its_value_its_rule_and_the_way_out(self, cli, option, value, told):
        refused = cli.run("topic", "create", "events", option, value)

        assert refused.returncode == 64
        assert told in refused.stderr
        assert cli.json("topic", "list") == []

    def test_is_altered(self, events):
        altered = events.run("topic", "alter", "events", "--retention", "1h", "--segment-bytes", "1MiB")

        assert altered.returncode == 0
        assert "topic events: retention is 3600s, and was 0s" in altered.stderr
        assert "topic events: segment_bytes is 1048576, and was 33554432" in altered.stderr
        told = events.json("topic", "alter", "events", "--retention", "2h")
        assert (told["topic"], told["settings"]["retention_ms"]) == ("events", 7_200_000)

    def test_is_not_altered_where_nothing_is_named_or_it_stands(self, events):
        nothing = events.run("topic", "alter", "events")
        fixed = events.run("topic", "alter", "events", "--partitions", "2")

        assert (nothing.returncode, fixed.returncode) == (64, 64)
        assert "name what to alter" in nothing.stderr
        assert "partitions of topic 'events' cannot be altered" in fixed.stderr

    def test_is_listed(self, events):
        events.ok("topic", "create", "bills", "--partitions", "2")

        bills, found = events.json("topic", "list")

        assert bills == {"topic": "bills", "partitions": 2, "messages": 0, "size": 0, "groups": 0}
        assert found == {"topic": "events", "partitions": 1, "messages": 3, "size": 11, "groups": 0}
        assert events.ok("topic", "list", "--names") == "bills\nevents\n"
        heads, *rows = events.ok("topic", "list").splitlines()
        assert [row.split()[0] for row in (heads, *rows)] == ["topic", "bills", "events"]

    def test_tells_its_settings_partitions_and_groups(self, events):
        events.ok("topic", "consume", "events", "billing", "--count", "1")

        told = events.json("topic", "info", "events")

        assert told["topic"] == "events"
        assert told["settings"]["partitions"] == 1
        assert told["partitions"] == [{"partition": 0, "oldest": 1, "latest": 4, "segments": 1, "size": 11}]
        assert told["groups"] == [{"group": "billing", "lag": 2}]
        assert told["subscriptions"] == []
        shown = events.ok("topic", "info", "events")
        assert "how long a message is kept, by whole segments" in shown
        assert ["0", "1", "4", "1", "11"] in [line.split() for line in shown.splitlines()]
        assert ["billing", "2"] in [line.split() for line in shown.splitlines()]

    def test_is_deleted_after_a_question(self, events):
        asked = events.run("topic", "delete", "events")
        assert (asked.returncode, "Add --yes" in asked.stderr) == (64, True)

        assert events.json("topic", "delete", "events", "--yes") == {"topic": "events", "state": "deleted"}
        assert events.json("topic", "list") == []

    @pytest.mark.parametrize(
        "command",
        [
            ("alter", "none", "--retention", "1h"),
            ("info", "none"),
            ("publish", "none"),
            ("read", "none", "--partition", "0"),
            ("follow", "none"),
            ("consume", "none", "billing"),
            ("groups", "none"),
            ("reset", "none", "billing", "--to", "earliest"),
            ("delete-group", "none", "billing", "--yes"),
            ("clear", "none", "--yes"),
            ("delete", "none", "--yes"),
        ],
        ids=lambda command: command[0],
    )
    def test_that_is_not_there_is_told_of_with_the_way_to_make_it(self, cli, command):
        done = cli.run("topic", *command, stdin=b"one")

        assert (done.returncode, done.stdout) == (66, "")
        assert "`cassq topic create none` makes it" in done.stderr


class TestPublish:
    def test_prints_the_place_of_each_file(self, cli, tmp_path):
        cli.ok("topic", "create", "events")
        first, second = tmp_path / "first", tmp_path / "second"
        first.write_bytes(b"one")
        second.write_bytes(b"two")

        assert cli.ok("topic", "publish", "events", first, second) == "0:1\n0:2\n"
        assert cli.ok("topic", "publish", "events", "-", stdin=b"three\n") == "0:3\n"
        assert cli.ok("topic", "read", "events") == "one\ntwo\nthree\n\n"

    def test_prints_json(self, events):
        told = events.lines("topic", "publish", "events", "--lines", stdin=b"four\nfive\n")

        assert told == [
            {"partition": 0, "offset": 4, "is_repeat": False},
            {"partition": 0, "offset": 5, "is_repeat": False},
        ]

    def test_prints_the_number_alone(self, events):
        assert events.ok("topic", "publish", "events", "--lines", "-q", stdin=b"4\n5\n") == "2\n"
        told = events.json("topic", "publish", "events", "--lines", "-q", stdin=b"6\n")
        assert told == {"published": 1, "repeats": 0}

    def test_takes_headers_a_key_and_a_type(self, spread):
        first, second = spread.ok(
            *("topic", "publish", "spread", "--lines", "--key", "customer-42", "--type", "order.new"),
            *("--header", "trace=a=b"),
            stdin=b"three\nfour\n",
        ).splitlines()

        partition, offset = map(int, first.split(":"))
        assert (offset, second) == (3, f"{partition}:4")
        (message, _) = spread.json("topic", "read", "spread", "--partition", partition, "--since", "3")[
            "messages"
        ]
        assert message["headers"] == {"key": "customer-42", "type": "order.new", "trace": "a=b"}
        assert (message["key"], message["type"]) == ("customer-42", "order.new")

    def test_refuses_two_keys(self, events):
        refused = events.run("topic", "publish", "events", "--key", "a", "--header", "key=b", stdin=b"four")

        assert refused.returncode == 64
        assert "--key and --header key=… differ: leave one of them out" in refused.stderr

    def test_with_a_writer_and_a_number_publishes_once(self, spread):
        call = "topic", "publish", "spread", "--lines", "--writer", "import", "--number", "7"
        first = spread.lines(*call, stdin=b"a\nb\n")

        again = spread.run(*call, stdin=b"a\nb\nc\n")

        assert [each["is_repeat"] for each in first] == [False, False]
        partition = first[0]["partition"]
        assert again.stdout.splitlines() == [f"{partition}:4", f"{partition}:4", f"{partition}:5"]
        assert "2 messages not published again: the number was used before" in again.stderr
        found = spread.json("topic", "read", "spread", "--partition", partition, "--since", "3")
        assert [each["body"] for each in found["messages"]] == ["a", "b", "c"]

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (("--writer", "import"), "writer='import' and number=None belong together"),
            (("--number", "1"), "writer=None and number=1 belong together"),
            (("--writer", "import", "--number", "-1"), "number=-1 must be an int of 0 or more"),
            (("--partition", "1"), "partition=1 must be an int of 0 to 0"),
            (("--header", "name"), "'name' is not NAME=VALUE"),
        ],
    )
    def test_refuses_options_that_break_a_rule(self, events, options, told):
        refused = events.run("topic", "publish", "events", *options, stdin=b"four")

        assert (refused.returncode, refused.stdout) == (64, "")
        assert told in refused.stderr

    def test_refuses_empty_input_and_bodies_that_are_too_large(self, cli):
        cli.ok("topic", "create", "events", "--body-bytes-max", "4")

        empty = cli.run("topic", "publish", "events")
        large = cli.run("topic", "publish", "events", "--lines", stdin=b"four\nlarge\n")

        assert (empty.returncode, "--allow-empty" in empty.stderr) == (64, True)
        assert (large.returncode, large.stdout) == (65, "0:1\n")
        assert "published 1 message, and then failed" in large.stderr
        assert "larger than the 4 bytes that the topic takes (body_bytes_max)" in large.stderr
        assert cli.ok("topic", "publish", "events", "--allow-empty") == "0:2\n"

    def test_says_which_file_cannot_be_read(self, events, tmp_path):
        assert events.run("topic", "publish", "events", tmp_path / "none").returncode == 66


class TestRead:
    def test_prints_a_page_and_where_to_read_on(self, events):
        page = events.run("topic", "read", "events", "--limit", "2")

        assert (page.returncode, page.stdout) == (0, "one\ntwo\n")
        assert "--since 3" in page.stderr
        rest = events.run("topic", "read", "events", "--since", "3")
        assert (rest.stdout, rest.stderr) == ("three\n", "")

    def test_prints_json(self, events):
        page = events.json("topic", "read", "events", "--limit", "2", "--order", "descending")

        messages = page.pop("messages")
        assert page == {"topic": "events", "partition": 0, "next": 1, "oldest": 1, "latest": 4}
        assert [(each["offset"], each["body"]) for each in messages] == [(3, "three"), (2, "two")]
        assert messages[0].keys() == MESSAGE

    def test_tells_which_offsets_there_are_where_there_is_nothing(self, events):
        done = events.run("topic", "read", "events", "--since", "9")

        assert (done.returncode, done.stdout) == (0, "")
        assert "partition 0 has the offsets 1 to 3" in done.stderr
        events.ok("topic", "clear", "events", "--yes")
        assert "partition 0 is empty" in events.run("topic", "read", "events").stderr

    def test_of_several_partitions_wants_one(self, spread):
        which = spread.run("topic", "read", "spread")
        wrong = spread.run("topic", "read", "spread", "--partition", "3")

        assert (which.returncode, wrong.returncode) == (64, 64)
        assert "topic 'spread' has 3 partitions: name one" in which.stderr
        assert "partition=3 must be an int of 0 to 2" in wrong.stderr
        assert spread.ok("topic", "read", "spread", "--partition", "2") == "one\ntwo\n"

    def test_tells_of_an_offset_that_is_gone(self, events):
        asked = events.run("topic", "clear", "events")
        assert (asked.returncode, "Add --yes" in asked.stderr) == (64, True)
        assert events.json("topic", "clear", "events", "--yes") == {"topic": "events", "segments": 1}

        gone = events.run("topic", "read", "events", "--since", "1")

        assert (gone.returncode, gone.stdout) == (65, "")
        assert "offset 1 is gone" in gone.stderr
        assert "the oldest that is left is 4" in gone.stderr
        assert events.ok("topic", "publish", "events", stdin=b"four") == "0:4\n"
        assert events.ok("topic", "read", "events") == "four\n"

    @pytest.mark.parametrize("options", [("--limit", "0"), ("--since", "0"), ("--order", "sideways")])
    def test_refuses_options_that_break_a_rule(self, events, options):
        assert events.run("topic", "read", "events", *options).returncode == 64


class TestFollow:
    def test_prints_from_a_place_on(self, events):
        assert events.ok("topic", "follow", "events", "--count", "3") == "one\ntwo\nthree\n"
        assert events.ok("topic", "follow", "events", "--count", "2", "--start", "2") == "two\nthree\n"
        (last,) = events.lines("topic", "follow", "events", "--count", "1", "--start", "0:3")
        assert (last["offset"], last["body"], last.keys()) == (3, "three", MESSAGE)
        long_ago = (datetime.now(UTC) - timedelta(days=1)).isoformat()
        assert events.ok("topic", "follow", "events", "--count", "1", "--start", long_ago) == "one\n"

    def test_prints_some_types_alone(self, events):
        events.ok("topic", "publish", "events", "--type", "order.new", stdin=b"order")
        events.ok("topic", "publish", "events", "--type", "bill.new", stdin=b"bill")

        assert events.ok("topic", "follow", "events", "--type", "order.*", "--count", "1") == "order\n"

    def test_says_that_nothing_came_in_time(self, events):
        done = events.run("topic", "follow", "events", "--start", "latest", "--timeout", "0.01")

        assert (done.returncode, done.stdout) == (0, "")
        assert "no message came within 0.01 s" in done.stderr

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
    def test_goes_on_until_a_signal(self, events, number, code):
        running = events.start("topic", "follow", "events")
        assert [running.stdout.readline() for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]
        events.ok("topic", "publish", "events", stdin=b"four")
        assert running.stdout.readline() == b"four\n"

        running.send_signal(number)

        assert finish(running) == (code, "")

    def test_that_waits_for_a_number_and_is_ended_has_not_done_its_work(self, events):
        running = events.start("topic", "follow", "events", "--count", "4")
        assert running.stdout.readline() == b"one\n"

        running.send_signal(signal.SIGTERM)

        assert finish(running) == (143, "")

    def test_ends_where_the_topic_is_deleted(self, events):
        running = events.start("topic", "follow", "events")
        assert running.stdout.readline() == b"one\n"

        events.ok("topic", "delete", "events", "--yes")

        code, told = finish(running)
        assert (code, "topic 'events' was deleted" in told) == (66, True)

    @pytest.mark.parametrize("place", ["soon", "2027-01-01T08:00", "0:1,", "1:"])
    def test_refuses_what_is_no_place(self, events, place):
        refused = events.run("topic", "follow", "events", "--start", place)

        assert refused.returncode == 64
        assert f"{place!r} is no place in a topic: write earliest, latest, a time" in refused.stderr


class TestConsume:
    def test_goes_on_where_the_group_was(self, events):
        assert events.ok("topic", "consume", "events", "billing", "--count", "2") == "one\ntwo\n"
        assert places(events, "events", "billing") == {0: 3}

        (last,) = events.lines("topic", "consume", "events", "billing", "--count", "1")

        assert (last["offset"], last["body"], last.keys()) == (3, "three", MESSAGE)
        assert places(events, "events", "billing") == {0: 4}

    def test_gives_each_group_all_messages(self, events):
        for group in ("billing", "search"):
            assert events.ok("topic", "consume", "events", group, "--count", "3") == "one\ntwo\nthree\n"

    def test_of_a_new_group_begins_at_a_place(self, events):
        assert events.ok("topic", "consume", "events", "late", "--start", "3", "--count", "1") == "three\n"

    def test_prints_some_types_alone_and_moves_past_the_others(self, events):
        events.ok("topic", "publish", "events", "--type", "order.new", stdin=b"order")

        printed = events.ok("topic", "consume", "events", "billing", "--type", "order.*", "--count", "1")

        assert printed == "order\n"
        assert places(events, "events", "billing") == {0: 5}

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
    def test_goes_on_until_a_signal(self, events, number, code):
        running = events.start("topic", "consume", "events", "billing")
        assert [running.stdout.readline() for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]

        running.send_signal(number)

        assert finish(running) == (code, "")
        assert places(events, "events", "billing") == {0: 4}

    @staticmethod
    def is_shared(lags):
        """Tell whether two members have partitions, and are at their ends."""
        owners = {each["owner"] for each in lags} - {None}
        return len(owners) == 2 and not any(each["lag"] for each in lags)

    def test_shares_the_partitions_with_other_members(self, spread):
        both = [spread.start("topic", "consume", "spread", "billing") for _ in range(2)]
        until(lambda: self.is_shared(spread.json("topic", "groups", "spread")))
        for running in both:
            running.send_signal(signal.SIGTERM)

        printed = [running.communicate(timeout=60)[0].split() for running in both]

        assert [running.returncode for running in both] == [0, 0]
        assert sorted(printed[0] + printed[1]) == sorted([b"one", b"two"] * 3)
        assert places(spread, "spread", "billing") == {0: 3, 1: 3, 2: 3}

    def test_does_not_end_what_the_next_program_did_not_take(self, events):
        # More than a pipe holds, so that it is cut
        events.ok("topic", "publish", "events", stdin=b"x" * 300_000)
        running = events.start("topic", "consume", "events", "billing")
        assert [running.stdout.readline() for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]

        running.stdout.close()

        assert running.wait(timeout=30) == 141
        running.stdin.close()
        running.stderr.close()
        assert places(events, "events", "billing") == {0: 4}

    def test_of_a_group_whose_messages_are_gone_says_how_to_go_on(self, events):
        events.ok("topic", "consume", "events", "billing", "--count", "1")
        events.ok("topic", "clear", "events", "--yes")

        gone = events.run("topic", "consume", "events", "billing", "--count", "1")

        assert (gone.returncode, gone.stdout) == (65, "")
        assert "`cassq topic reset events billing --to earliest`" in gone.stderr
        events.ok("topic", "reset", "events", "billing", "--to", "earliest")
        events.ok("topic", "publish", "events", stdin=b"four")
        assert events.ok("topic", "consume", "events", "billing", "--count", "1") == "four\n"


class TestGroups:
    def test_are_told_with_the_lag_of_each_partition(self, spread):
        spread.ok("topic", "consume", "spread", "billing", "--count", "6")
        spread.ok("topic", "publish", "spread", "--partition", "1", stdin=b"three")

        found = spread.json("topic", "groups", "spread")

        assert [(each["group"], each["partition"], each["lag"]) for each in found] == [
            ("billing", 0, 0),
            ("billing", 1, 1),
            ("billing", 2, 0),
        ]
        assert found[1].keys() == {"group", "partition", "next", "latest", "lag", "owner", "epoch"}
        heads, *rows = spread.ok("topic", "groups", "spread").splitlines()
        assert heads.split()[:3] == ["group", "partition", "next"]
        assert [row.split()[0] for row in rows] == ["billing"] * 3

    def test_are_none(self, events):
        done = events.run("topic", "groups", "events")

        assert (done.returncode, done.stdout) == (0, "")
        assert "topic 'events' has no groups" in done.stderr
        assert events.json("topic", "groups", "events") == []

    def test_go_on_somewhere_else_after_a_reset(self, events):
        events.ok("topic", "consume", "events", "billing", "--count", "3")

        told = events.json("topic", "reset", "events", "billing", "--to", "2")

        assert (told["topic"], told["group"]) == ("events", "billing")
        assert [each["next"] for each in told["partitions"]] == [2]
        assert events.ok("topic", "consume", "events", "billing", "--count", "2") == "two\nthree\n"

    @pytest.mark.parametrize(
        ("place", "found"), [("earliest", 1), ("latest", 4), ("2020-01-01T00:00Z", 1), ("0:3", 3)]
    )
    def test_go_on_at_any_place(self, events, place, found):
        events.ok("topic", "consume", "events", "billing", "--count", "2")

        done = events.run("topic", "reset", "events", "billing", "--to", place)

        assert (done.returncode, done.stdout) == (0, "")
        assert f"group billing of topic events goes on at 0:{found}" in done.stderr
        assert places(events, "events", "billing") == {0: found}

    def test_are_deleted_after_a_question(self, events):
        events.ok("topic", "consume", "events", "billing", "--count", "1")
        asked = events.run("topic", "delete-group", "events", "billing")
        assert (asked.returncode, "Add --yes" in asked.stderr) == (64, True)

        told = events.json("topic", "delete-group", "events", "billing", "--yes")

        assert told == {"topic": "events", "deleted_group": "billing"}
        assert events.run("topic", "delete-group", "events", "billing", "--yes").returncode == 66

    def test_stay_where_they_are_in_partitions_that_a_reset_does_not_name(self, spread):
        spread.ok("topic", "consume", "spread", "billing", "--count", "6")

        spread.ok("topic", "reset", "spread", "billing", "--to", "1:2")

        assert places(spread, "spread", "billing") == {0: 3, 1: 2, 2: 3}

    def test_are_not_reset_to_what_is_no_place(self, spread):
        spread.ok("topic", "consume", "spread", "billing", "--count", "6")

        for place, told in (
            ("17", "topic 'spread' has 3 partitions, in each of which 17 is another message"),
            ("3:1", "partition=3 must be an int of 0 to 2"),
            ("0:0", "offset=0 must be an int of 1 or more"),
        ):
            refused = spread.run("topic", "reset", "spread", "billing", "--to", place)
            assert refused.returncode == 64
            assert told in refused.stderr
        assert places(spread, "spread", "billing") == {0: 3, 1: 3, 2: 3}

    def test_that_are_not_there_are_told_of(self, events):
        events.ok("topic", "consume", "events", "billing", "--count", "1")

        done = events.run("topic", "reset", "events", "search", "--to", "earliest")

        assert done.returncode == 66
        assert "topic 'events' has no group 'search'; it has: billing" in done.stderr

    def test_of_a_name_that_breaks_the_rule_are_refused(self, events):
        assert events.run("topic", "consume", "events", "no/group", "--count", "1").returncode == 64


class TestSubscriptions:
    @pytest.fixture
    def queues(self, events):
        """Two queues beside the topic."""
        for queue in ("billing", "search"):
            events.ok("queue", "create", queue)
        return events

    @staticmethod
    def popped(cli, queue, count):
        """Pop so many messages as they come; return their bodies and where they were published."""
        found = []
        while len(found) < count:
            (each,) = cli.lines("pop", queue, "--commit", "--timeout", "60s")
            found.append((each["body"], each["headers"]["cassq-offset"]))
        return found

    def test_are_declared_and_told_with_their_lag(self, queues):
        told = queues.run("topic", "subscribe", "events", "billing", "--type", "order.*", "--type", "bill")
        assert (told.returncode, told.stdout) == (0, "")
        assert "queue billing is subscribed to topic events" in told.stderr

        made = queues.json("topic", "subscribe", "events", "search", "--start", "3", "--skip-gone")

        assert made == {"topic": "events", "queue": "search", "types": None, "on_gone": "oldest"}
        found = queues.json("topic", "info", "events")
        assert found["groups"] == []
        assert found["subscriptions"] == [
            {"queue": "billing", "types": ["bill", "order.*"], "on_gone": "error", "lag": 3},
            {"queue": "search", "types": None, "on_gone": "oldest", "lag": 1},
        ]
        rows = [line.split() for line in queues.ok("topic", "info", "events").splitlines()]
        assert ["search", "all", "oldest", "1"] in rows
        assert places(queues, "events", "search") == {0: 3}

    def test_are_declared_again_with_the_same_types_only(self, queues):
        for types in (("a", "b"), ("b", "a")):
            queues.ok("topic", "subscribe", "events", "billing", *(f"--type={each}" for each in types))

        refused = queues.run("topic", "subscribe", "events", "billing", "--type", "a")

        assert refused.returncode == 64
        assert "with types ['a', 'b'], on_gone=error, and not ['a'], on_gone=error" in refused.stderr

    def test_of_a_queue_that_is_not_there_are_refused(self, events):
        refused = events.run("topic", "subscribe", "events", "nowhere")

        assert refused.returncode == 66
        assert "`cassq queue create nowhere` makes it" in refused.stderr
        assert events.json("topic", "info", "events")["subscriptions"] == []

    def test_end_after_a_question(self, queues):
        queues.ok("topic", "subscribe", "events", "billing")
        asked = queues.run("topic", "unsubscribe", "events", "billing")
        assert (asked.returncode, "Add --yes" in asked.stderr) == (64, True)

        told = queues.json("topic", "unsubscribe", "events", "billing", "--yes")

        assert told == {"topic": "events", "unsubscribed": "billing"}
        assert queues.run("topic", "unsubscribe", "events", "billing", "--yes").returncode == 66

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
    def test_fill_their_queues_until_a_signal(self, queues, number, code):
        for queue in ("billing", "search"):
            queues.ok("topic", "subscribe", "events", queue)
        running = queues.start("topic", "relay", "events")
        wanted = [("one", "0:1"), ("two", "0:2"), ("three", "0:3")]
        assert [self.popped(queues, each, 3) for each in ("billing", "search")] == [wanted, wanted]

        running.send_signal(number)

        ended, told = finish(running)
        assert (ended, "topic events goes into billing, search" in told) == (code, True)
        assert places(queues, "events", "billing") == {0: 4}

    def test_are_gone_on_with_where_the_relay_before_ended(self, queues):
        queues.ok("topic", "subscribe", "events", "billing")
        for wanted in (["one", "two", "three"], ["four"]):
            running = queues.start("topic", "relay", "events", "billing", "--json")
            assert running.stdout.readline() == b'{"topic": "events", "queues": ["billing"]}\n'
            assert [body for body, _ in self.popped(queues, "billing", len(wanted))] == wanted
            running.send_signal(signal.SIGTERM)
            assert finish(running) == (0, "")
            queues.ok("topic", "publish", "events", stdin=b"four")

    def test_that_are_not_there_are_not_relayed(self, queues):
        none = queues.run("topic", "relay", "events")
        other = queues.run("topic", "relay", "events", "billing")

        assert (none.returncode, other.returncode) == (66, 66)
        assert "`cassq topic subscribe events QUEUE` makes one" in none.stderr
        assert "`cassq topic subscribe events billing` makes a subscription" in other.stderr

    @pytest.mark.parametrize(
        ("ending", "code", "told"),
        [
            (
                ("topic", "unsubscribe", "events", "billing"),
                66,
                "relay into queue billing: topic 'events' has no",
            ),
            (
                ("queue", "delete", "billing"),
                66,
                "`cassq topic unsubscribe events billing` ends the subscription",
            ),
            (("topic", "delete", "events"), 66, "topic 'events' was deleted"),
        ],
    )
    def test_end_a_relay_whose_topic_or_queue_or_subscription_goes(self, queues, ending, code, told):
        for queue in ("billing", "search"):
            queues.ok("topic", "subscribe", "events", queue)
        running = queues.start("topic", "relay", "events")
        self.popped(queues, "billing", 1)

        queues.ok(*ending, "--yes")

        ended, words = finish(running)
        assert (ended, told in words) == (code, True), words

    def test_whose_messages_are_gone_say_how_to_go_on(self, queues):
        queues.ok("topic", "subscribe", "events", "billing")
        queues.ok("topic", "clear", "events", "--yes")

        gone = queues.run("topic", "relay", "events")

        assert gone.returncode == 65
        assert "`cassq topic reset events billing --to earliest` has it go on" in gone.stderr

    def test_of_a_queue_that_was_made_anew_are_refused(self, queues):
        queues.ok("topic", "subscribe", "events", "billing")
        queues.ok("queue", "delete", "billing", "--yes")
        queues.ok("queue", "create", "billing")

        refused = queues.run("topic", "relay", "events")

        assert refused.returncode == 64
        assert "was deleted and made anew" in refused.stderr


class TestLibrary:
    """What the commands rely on."""

    def test_tells_a_member_that_its_group_was_deleted_while_it_claims(self, tmp_path):
        with cassq.connect(f"sqlite:///{tmp_path}/store.db") as store:
            topic = store.topic("events", partitions=50)
            with topic.consumer("billing") as consumer:
                until(lambda: consumer.partitions)
                topic.delete_group("billing")
                with pytest.raises(cassq.GroupNotFoundError, match="has no group 'billing'"):
                    consumer.poll(timeout=60)

    def test_refuses_places_in_partitions_that_are_not_there(self, tmp_path):
        with cassq.connect(f"sqlite:///{tmp_path}/store.db") as store:
            topic = store.topic("events", partitions=2)
            for wrong in ({2: 1}, {"0": 1}):  # as JSON brings them back
                with pytest.raises(cassq.InvalidOptionError, match="must be an int of 0 to 1"):
                    topic.reader(wrong)


def test_a_pass_of_the_reaper_tells_of_segments(events):
    assert "deleted 0 segments of topics" in events.ok("reap")
    assert events.json("reap")["segments"] == 0


def test_the_commands_are_listed(cli):
    told = cli.ok("topic", "--help")

    names = "create alter list info publish read follow consume groups reset clear delete"
    more = "subscribe unsubscribe relay"
    assert all(f"\n  {name} " in told for name in (*names.split(), *more.split()))
