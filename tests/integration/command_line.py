"""Runs the `cassq` executable as a shell would."""

import atexit
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_server import FREE, CommandServer

CASSQ = str(Path(sys.executable).with_name("cassq"))

#: What an installed cassq needs of the environment: nothing.
BARE = {"PATH": "/usr/bin:/bin"}

# Runs the rest of its arguments without root's right to write what is read-only.
WITHOUT_ROOT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


class CommandLine:
    """The executable, with one store."""

    def __init__(self, url=None, env=None):
        self.url = url
        self.env = {**(BARE if env is None else env), **({"CASSQ_URL": url} if url else {})}

    def run(self, *arguments, stdin=b"", timeout=60, wrapper=(), env=None):
        """Run it to its end."""
        words = [*wrapper, CASSQ, *map(str, arguments)]
        env = self.env if env is None else env
        if not wrapper and all(name.startswith(FREE) for name in env):
            done = _server().run(words, env, stdin, timeout)
        else:
            done = subprocess.run(
                words, input=stdin, capture_output=True, timeout=timeout, check=False, env=env
            )
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def ok(self, *arguments, stdin=b"", **options):
        """Run it, expect exit code 0, return what it printed."""
        done = self.run(*arguments, stdin=stdin, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments, **options):
        """Run it with --json and return the document."""
        return json.loads(self.ok(*arguments, "--json", **options))

    def lines(self, *arguments, **options):
        """Run it with --json and return one document for each line."""
        return [json.loads(line) for line in self.ok(*arguments, "--json", **options).splitlines()]

    def start(self, *arguments, **options):
        """Start it, with pipes.

        They have no buffer: communicate() does not see what readline() read too much.
        """
        return subprocess.Popen(
            [CASSQ, *map(str, arguments)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
            **options,
        )


@functools.cache
def _server():
    """Return what forks commands; it ends with the tests."""
    server = CommandServer(BARE)
    atexit.register(server.close)
    return server


def finish(process, timeout=30):
    """Wait for a started process; return exit code and what it said."""
    _, stderr = process.communicate(timeout=timeout)
    stderr = stderr.decode()
    assert "Traceback" not in stderr, stderr
    return process.returncode, stderr


def service(name):
    """Return the address of a service under test; without one the test fails."""
    address = os.environ.get(name)
    if not address:
        pytest.fail(f'{name} is not set: run tools/test, or `eval "$(tools/services start)"` first')
    return address


def cluster_url(keyspace):
    """Return the URL of a store on the services under test."""
    return (
        f"cassandra://{service('CASSQ_TEST_CASSANDRA')}/{keyspace}"
        f"?zookeeper={service('CASSQ_TEST_ZOOKEEPER')}"
    )
