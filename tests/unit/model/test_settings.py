"""What a queue may be told."""

from dataclasses import fields
from datetime import timedelta
from typing import get_type_hints

import pytest

from cassq.errors import DecodeError, InvalidOptionError
from cassq.model.settings import QueueOptions, QueueSettings


def test_settings_read_back_what_was_stored():
    settings = QueueSettings(lease=timedelta(seconds=7), max_attempts=3)

    assert QueueSettings.from_stored(settings.to_stored()) == settings


def test_a_setting_that_an_older_version_did_not_store_gets_its_default():
    stored = QueueSettings().to_stored()
    del stored["pop_width"]

    assert QueueSettings.from_stored(stored) == QueueSettings()


@pytest.mark.parametrize("setting", fields(QueueSettings), ids=lambda setting: setting.name)
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


def test_stored_settings_that_are_not_ours_are_refused():
    with pytest.raises(DecodeError):
        QueueSettings.from_stored({"pop_width": 0})
    with pytest.raises(DecodeError):
        QueueSettings.from_stored({"lease_ms": "soon"})


def test_type_checkers_know_every_setting_by_its_type():
    assert get_type_hints(QueueOptions) == get_type_hints(QueueSettings)
