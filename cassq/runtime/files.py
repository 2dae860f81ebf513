"""Files that others of the machine may not read unless that is asked for.

Owns the mode of a new file, and that its name stays. What must not break: a file that is there keeps its
mode, and none is open to others for a moment before it is closed to them. A file that is there is not even
opened: closing it again would drop the locks that SQLite holds on it in this process.
"""

import errno
import os
from contextlib import suppress

#: Who may use a new file: its owner.
FILE_MODE = 0o600

#: What a file system answers that cannot sync a folder at all.
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


def make_file(path: str, mode: int) -> None:
    """Make an empty file of exactly this mode, whatever the umask; one that is there is left alone.

    What stands in the way of it is told by who opens the file.
    """
    with suppress(OSError):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            os.fchmod(file, mode)
        finally:
            os.close(file)


def sync_names(path: str) -> bool:
    """Have the disk keep the names of a file and of those beside it.

    Returns: False where the file system cannot sync a folder at all, so that nobody knows when it keeps them.

    Raises:
        PermissionError: the folder may not be read, as who syncs it has to.
        OSError: it may not have kept them.
    """
    folder = os.open(os.path.dirname(os.path.realpath(path)), os.O_RDONLY | os.O_CLOEXEC)  # noqa: PTH120
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno in _NO_FOLDER_SYNC:
            return False
        raise
    else:
        return True
    finally:
        os.close(folder)


def mode_of(path: str) -> int:
    """Return the mode of a file, for those beside it; that of a new one where there is none."""
    try:
        return os.stat(path).st_mode & 0o777  # noqa: PTH116 (asked with each new connection)
    except OSError:
        return FILE_MODE
