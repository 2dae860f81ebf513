"""What a queue may be told."""

from datetime import timedelta
from typing import get_type_hints

import pytest

from cassq.errors import DecodeError, InvalidOptionError
from cassq.model.options import AlterOptions, QueueOptions
from cassq.model.settings import QueueSettings, fixed_settings, settings_known


def test_settings_read_back_what_was_stored():
    settings = QueueSettings(lease=timedelta(seconds=7), max_attempts=3)

    assert QueueSettings.from_stored(settings.to_stored()) == settings


def test_a_setting_that_an_older_version_did_not_store_gets_its_default():
    stored = QueueSettings().to_stored()
    del stored["pop_width"]

    assert QueueSettings.from_stored(stored) == QueueSettings()


MEASURES = [setting for setting in settings_known() if "choices" not in setting.metadata]


@pytest.mark.parametrize("setting", MEASURES, ids=lambda setting: setting.name)
def test_every_setting_is_bounded_on_both_sides(setting):
    step = timedelta(milliseconds=1) if isinstance(setting.default, timedelta) else 1
    for value in (setting.metadata["low"] - step, setting.metadata["high"] + step):
        with pytest.raises(InvalidOptionError, match=rf"{setting.name}=.* is out of range: .* to "):
            QueueSettings(**{setting.name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("lease", 30), ("lease", "30s"), ("max_attempts", 2.5), ("max_attempts", True), ("pop_width", None)],
)
def test_a_value_of_the_wrong_type_is_named(name, value):
    with pytest.raises(InvalidOptionError, match=name):
        QueueSettings.from_options({name: value})


@pytest.mark.parametrize("value", ["bury", "", None, 0, ["drop"]])
def test_what_is_no_choice_is_told_with_those_that_are(value):
    with pytest.raises(InvalidOptionError, match=r"on_expired=.* must be 'drop' or 'dead' \("):
        QueueSettings.from_options({"on_expired": value})


def test_a_choice_is_stored_as_a_number_and_read_back():
    for value in ("drop", "dead"):
        stored = QueueSettings(on_expired=value).to_stored()
        assert type(stored["on_expired"]) is int
        assert QueueSettings.from_stored(stored).on_expired == value
    for unknown in (2, -1):
        with pytest.raises(DecodeError, match=f"on_expired={unknown} is out of range"):
            QueueSettings.from_stored({"on_expired": unknown})


def test_people_and_programs_read_the_words_of_a_choice_and_the_rest_as_it_is_stored():
    settings = QueueSettings.from_stored({"keys": 1, "on_expired": 1, "lease_ms": 7000, "uses_keys": 1})
    told = settings.to_json()
    assert (told["keys"], told["on_expired"], told["lease_ms"], told["uses_keys"]) == (
        "exclusive",
        "dead",
        7000,
        1,
    )
    assert told.keys() == settings.to_stored().keys()


@pytest.mark.parametrize("ttl", [timedelta(milliseconds=1), timedelta(milliseconds=999)])
def test_a_time_to_live_is_none_or_long_enough(ttl):
    with pytest.raises(
        InvalidOptionError, match=r"out of range: 1s to .*, or 0s for messages that never expire"
    ):
        QueueSettings(ttl=ttl)
    assert QueueSettings(ttl=timedelta(seconds=1)).ttl
    assert not QueueSettings().ttl


def test_an_unknown_setting_is_named_with_the_known_ones():
    with pytest.raises(InvalidOptionError, match=r"'leese' is not a setting.*lease"):
        QueueSettings.from_options({"leese": 1})


def test_a_body_larger_than_a_pipe_makes_no_sense():
    with pytest.raises(InvalidOptionError, match="pipe_bytes_max"):
        QueueSettings(body_bytes_max=4096, pipe_bytes_max=2048)


def test_only_the_settings_that_are_named_are_compared():
    settings = QueueSettings(lease=timedelta(seconds=7))

    settings.check_same("orders", {"max_attempts": 5})
    with pytest.raises(InvalidOptionError, match="has lease=7s, not 8s"):
        settings.check_same("orders", {"lease": timedelta(seconds=8)})


def test_all_settings_that_differ_are_told_with_the_way_to_alter_them():
    settings = QueueSettings()

    with pytest.raises(
        InvalidOptionError, match=r"pop_width=8, not 3, lease=30s, not 8s.*cassq queue alter orders"
    ):
        settings.check_same("orders", {"pop_width": 3, "lease": timedelta(seconds=8)})
    with pytest.raises(InvalidOptionError, match="push_grace cannot be altered: delete"):
        settings.check_same("orders", {"push_grace": timedelta(seconds=8)})


def test_the_others_stay_when_some_are_altered():
    settings = QueueSettings(pop_width=3)

    altered = settings.altered("orders", {"lease": timedelta(minutes=2), "max_attempts": 9})

    assert altered == QueueSettings(pop_width=3, lease=timedelta(minutes=2), max_attempts=9)


@pytest.mark.parametrize("name", sorted(fixed_settings()))
def test_what_processes_judge_each_other_by_is_not_altered(name):
    settings = QueueSettings()
    longer = {name: 2 * getattr(settings, name)}

    with pytest.raises(InvalidOptionError, match=f"{name} of queue 'orders' cannot be altered"):
        settings.altered("orders", longer)
    assert settings.altered("orders", {name: getattr(settings, name)}) == settings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"leese": 1}, "'leese' is not a setting"),
        ({"lease": timedelta(0)}, "lease=0s is out of range"),
        ({"pop_width": "3"}, "pop_width='3' must be an int"),
        ({"pipe_bytes_max": 4096}, "raise pipe_bytes_max"),
    ],
)
def test_settings_are_not_altered_to_what_no_queue_may_have(options, words):
    with pytest.raises(InvalidOptionError, match=words):
        QueueSettings(body_bytes_max=8192).altered("orders", options)


def test_stored_settings_that_are_not_ours_are_refused():
    with pytest.raises(DecodeError):
        QueueSettings.from_stored({"pop_width": 0})
    with pytest.raises(DecodeError):
        QueueSettings.from_stored({"lease_ms": "soon"})


def test_type_checkers_know_every_setting_by_its_type():
    types = {name: kind for name, kind in get_type_hints(QueueSettings).items() if name != "others"}
    assert get_type_hints(QueueOptions) == types
    assert get_type_hints(AlterOptions) == {
        name: kind for name, kind in types.items() if name not in fixed_settings()
    }


def test_settings_of_a_newer_version_are_kept_when_the_record_is_written():
    stored = QueueSettings(pop_width=3).to_stored() | {"idle_max_ms": 60_000}

    read = QueueSettings.from_stored(stored)

    assert read.altered("orders", {"pop_width": 4}).to_stored() == stored | {"pop_width": 4}


def test_a_setting_that_a_queue_has_is_the_same_whatever_the_defaults_of_others_are():
    slow = {"retry_delay": timedelta(hours=1), "retry_delay_max": timedelta(hours=2)}

    QueueSettings(**slow).check_same("orders", {"retry_delay": timedelta(hours=1)})
    with pytest.raises(InvalidOptionError, match="retry_delay=3600s, not 1s"):
        QueueSettings(**slow).check_same("orders", {"retry_delay": timedelta(seconds=1)})
    with pytest.raises(InvalidOptionError, match="must be a timedelta"):
        QueueSettings(**slow).check_same("orders", {"retry_delay": 5})


def test_a_first_rest_longer_than_the_longest_is_refused():
    with pytest.raises(InvalidOptionError, match=r"retry_delay=3600s is longer than .*raise retry_delay_max"):
        QueueSettings(retry_delay=timedelta(hours=1))
