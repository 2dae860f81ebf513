"""A Python that has imported the command line, and forks a fresh process for each command.

Owns that process. A command is one as a shell starts it: it has its own arguments, environment, directory and
streams, and ends as any program does; only what it imports was imported before. Importing costs more than
most commands do. What must not break: what forks has one thread, and has opened nothing of the library's.
"""

import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path

#: The variables of a command that have no meaning for Python itself, which has begun long before.
FREE = ("CASSQ_", "HOME", "PATH")

#: What commands import as they go, and what takes long.
IMPORTS = (
    "cassandra.cluster",
    "cassandra.query",
    "cassq.cli.main",
    "cassq.cli.dead",
    "cassq.cli.doctor.command",
    "cassq.cli.pop",
    "cassq.cli.push",
    "cassq.cli.queues",
    "cassq.cli.reap",
    "cassq.cli.schema",
    "cassq.cli.topics",
    "kazoo.client",
)


class CommandServer:
    """Runs commands; safe to be called from many threads at once."""

    def __init__(self, environment):
        here, there = socket.socketpair()
        self._doors = here
        self._guard = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(there.fileno())],
            env=environment,
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        there.close()

    def run(self, words, environment, stdin, timeout):
        """Run a command to its end, as `subprocess.run` with `capture_output` does."""
        door, answers = socket.socketpair()
        given, out, err = os.pipe(), os.pipe(), os.pipe()
        order = json.dumps([words, dict(environment), str(Path.cwd())]).encode()
        try:
            with self._guard:
                socket.send_fds(
                    self._doors, [b"%8d" % len(order)], [answers.fileno(), given[0], out[1], err[1]]
                )
                self._doors.sendall(order)
        finally:
            answers.close()
            for end in (given[0], out[1], err[1]):
                os.close(end)
        feeding = threading.Thread(target=_feed, args=(given[1], stdin))
        feeding.start()
        door.settimeout(timeout)
        try:
            pid = int(door.recv(8))
            try:
                told = _drain({out[0], err[0]}, timeout, pid)
                code = int(door.recv(8))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(words, timeout) from None
        finally:
            door.close()
            feeding.join()
            os.close(out[0])
            os.close(err[0])
        return subprocess.CompletedProcess(words, code, told[out[0]], told[err[0]])

    def close(self):
        """End what forks."""
        self._doors.close()
        self._process.wait(60)


def _feed(end, data):
    with suppress(BrokenPipeError), os.fdopen(end, "wb") as pipe:
        pipe.write(data)


def _drain(ends, timeout, pid):
    """Read both streams to their end."""
    told = dict.fromkeys(ends, b"")
    with selectors.DefaultSelector() as selector:
        for end in ends:
            selector.register(end, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(timeout)
            if not ready:
                raise TimeoutError(f"process {pid} says nothing")
            for key, _ in ready:
                if found := os.read(key.fd, 1 << 16):
                    told[key.fd] += found
                else:
                    selector.unregister(key.fd)
    return told


def _serve(doors):
    """Fork for each order: a process that waits, and that forks the command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        length, fds, _, _ = socket.recv_fds(doors, 8, 4)
        if not length:
            return None
        left, order = int(length), b""
        while len(order) < left:
            order += doors.recv(left - len(order))
        if not os.fork():
            doors.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            program = os.fork()
            if not program:
                os.close(fds[0])
                return json.loads(order), fds[1:]
            answers = socket.socket(fileno=fds[0])
            for end in fds[1:]:
                os.close(end)
            answers.sendall(b"%8d" % program)
            answers.sendall(b"%8d" % os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]))
            os._exit(0)
        for end in fds:
            os.close(end)


def _become(order, streams):
    """Be the command, to its end."""
    words, environment, folder = order
    for number, end in enumerate(streams):
        os.dup2(end, number)
        os.close(end)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv[:] = words
    import cassq_command  # noqa: PLC0415

    cassq_command.main()


if __name__ == "__main__":
    import importlib

    # numpy, which the driver imports, begins threads with its import.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for _name in IMPORTS:
        importlib.import_module(_name)
    gc.freeze()  # or each fork would go through all that was imported, as it ends
    if len([*Path("/proc/self/task").glob("*")]) > 1:
        raise SystemExit("more than one thread would be forked")
    if _found := _serve(socket.socket(fileno=int(sys.argv[1]))):
        try:
            _become(*_found)
        except Exception:
            traceback.print_exc()
            sys.exit(1)
