"""What is said where the folder of a store's file cannot be synced."""

import errno
import logging
import os
import stat
from pathlib import Path

import pytest

import cassq
from cassq.cli.doctor import sqlite as doctor
from cassq.cli.doctor.finding import Level
from cassq.installation import target_of


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def answer(monkeypatch):
    """Return how to have the file system answer who syncs a folder."""

    def answer(code):
        sync = os.fsync

        def fsync(file):
            if stat.S_ISDIR(os.fstat(file).st_mode):
                raise OSError(code, os.strerror(code))
            sync(file)

        monkeypatch.setattr("os.fsync", fsync)

    return answer


def durability(url):
    return next(each for each in doctor.examine(target_of(url)) if each.check == "durability")


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP], ids=["EINVAL", "ENOTSUP"])
def test_a_file_system_that_cannot_sync_a_folder_is_told_once_and_by_doctor(url, answer, code, caplog):
    answer(code)

    with cassq.connect(url) as store:
        store.queue("q").push(b"a")
        with store.queue("q").popper() as popper:
            popper.pop(timeout=60).commit()

    (told,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "cannot sync a folder: a power cut could take what is stored" in told.getMessage()
    assert durability(url).level is Level.WARN


def test_a_folder_that_can_be_synced_is_no_news(url, caplog):
    with cassq.connect(url):
        pass

    assert not caplog.records
    assert durability(url).level is Level.OK


def test_a_store_in_a_folder_that_may_not_be_read_is_refused_with_what_to_do(url, monkeypatch):
    opened = os.open

    def open_file(path, flags, *more, **named):
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return opened(path, flags, *more, **named)

    monkeypatch.setattr("os.open", open_file)

    with pytest.raises(cassq.AccessDeniedError, match="let this user read the folder"):
        cassq.connect(url)
