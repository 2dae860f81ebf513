"""Who may use the files of an embedded store."""

import os

import pytest

import cassq


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["open umask", "usual umask", "strict umask"])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(path, options=""):
    """Push and pop, and return the modes of all files while the store is open."""
    with cassq.connect(f"sqlite:///{path}{options}") as store, store.queue("orders").popper() as popper:
        store.queue("orders").push(b"x")
        popper.pop(timeout=30).commit()
        files = sorted(path.parent.iterdir())
        assert [file.name.removeprefix(path.name) for file in files] == [
            *("", "-coordination", "-coordination-lock", "-coordination-shm", "-coordination-wal"),
            *("-shm", "-wal"),
        ]
        return {file.stat().st_mode & 0o777 for file in files}


@pytest.mark.usefixtures("umask")
def test_new_files_are_open_to_their_owner_alone(tmp_path):
    assert modes(tmp_path / "store.db") == {0o600}


@pytest.mark.usefixtures("umask")
def test_the_url_may_open_them_to_a_group(tmp_path):
    assert modes(tmp_path / "store.db", "?mode=0660") == {0o660}


def test_a_file_that_is_there_keeps_its_mode_and_those_beside_it_get_the_same(tmp_path):
    path = tmp_path / "store.db"
    path.touch()
    path.chmod(0o640)
    assert modes(path) == {0o640}


@pytest.mark.parametrize("mode", ["600x", "0400", "rw", "", "1777", "0o600"])
def test_what_is_no_mode_is_refused(tmp_path, mode):
    with pytest.raises(cassq.InvalidOptionError, match="0660"):
        cassq.connect(f"sqlite:///{tmp_path}/store.db?mode={mode}")
