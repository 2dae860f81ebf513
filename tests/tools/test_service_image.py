"""The recipe of the service's image: its steps are done here, in a fresh environment."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from fnmatch import fnmatch
from pathlib import Path

import pytest
from support.patience import until

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "service"

#: It is made of wheels that are loaded, which takes as long as the network does.
INSTALL_S = 900.0


def steps() -> list[tuple[str, str]]:
    """Return the instructions of the recipe, each with its words on one line."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [
        (word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in lines) if word
    ]


STEPS = steps()


def last(word: str) -> str:
    return [rest for name, rest in STEPS if name == word][-1]


def context(folder: Path) -> None:
    """Copy what a build would be sent: what the file beside the recipe lets through."""
    lines = (FOLDER / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    kept = [line[1:] for line in lines if line.startswith("!")]
    assert "*" in lines
    for name in kept:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy2(source, folder / name)


def test_it_ends_as_a_user_without_rights_and_begins_without_a_shell() -> None:
    assert last("USER").isdecimal()
    assert int(last("USER")) > 0
    assert json.loads(last("ENTRYPOINT"))[:2] == ["cassq", "serve"]
    assert json.loads(last("HEALTHCHECK").partition("CMD ")[2])[0] == "python"
    assert last("STOPSIGNAL") == "SIGTERM"
    names = [rest for word, rest in STEPS if word == "FROM"]
    assert all(fnmatch(each.split()[0], "python:3.*-slim") for each in names)
    assert not any(word == "ADD" for word, _ in STEPS)


def test_the_last_stage_has_what_the_first_one_made_and_nothing_else() -> None:
    begin = max(place for place, (word, _) in enumerate(STEPS) if word == "FROM")
    copied = [rest for word, rest in STEPS[begin:] if word == "COPY"]

    assert copied == ["--from=build /opt/cassq /opt/cassq"]


@pytest.mark.slow
def test_its_steps_make_a_service_that_starts_is_healthy_and_ends(tmp_path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    context(source)
    home = tmp_path / "opt"
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    made = [rest for word, rest in STEPS if word == "RUN" and "/opt/cassq" in rest]
    for step in made:
        own = step.replace("/src[", f"{source}[").replace("/opt/cassq", str(home))
        own = re.sub(r"^python ", f"{sys.executable} ", own)
        subprocess.run(["sh", "-e", "-c", own], env=bare, check=True, timeout=INSTALL_S, capture_output=True)
    assert len(made) == 2
    environment = {
        "PATH": f"{home}/bin:/usr/bin:/bin",
        "CASSQ_URL": f"sqlite:///{tmp_path}/orders.db",
        "HOME": "/nonexistent",
    }
    begin = json.loads(last("ENTRYPOINT"))
    refused = subprocess.run(
        [str(home / "bin" / begin[0]), *begin[1:]],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (refused.returncode, "--trusted-proxy" in refused.stderr) == (64, True)
    port = begin[begin.index("--port") + 1]
    free = _free_port()
    command = [str(home / "bin" / begin[0]), *begin[1:], "--port", free, "--trusted-proxy", "172.17.0.0/16"]

    with subprocess.Popen(command, cwd="/", env=environment, stderr=subprocess.PIPE) as service:
        try:
            until(lambda: _is_healthy(free))
            told = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
            check = [str(home / "bin" / told[0]), *(each.replace(port, free) for each in told[1:])]
            healthy = subprocess.run(check, env=environment, check=False, timeout=60).returncode
            service.send_signal(signal.SIGTERM)
            _, words = service.communicate(timeout=60)
        finally:
            service.kill()
    gone = subprocess.run(check, env=environment, check=False, timeout=60, capture_output=True).returncode

    assert (healthy, service.returncode, b"Traceback" in words) == (0, 0, False)
    assert gone != 0


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return str(bound.getsockname()[1])


def _is_healthy(port: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, ConnectionError):
        return False
