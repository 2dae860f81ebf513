"""What the pages have for supervisors is what those take, and what `cassq serve` takes."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pages import Example, examples

from cassq.cli.serve import serve

UNITS = [each for each in examples() if each.mark == "systemd"]
MANIFESTS = [each for each in examples() if each.mark == "kubernetes"]


def options_of(words: list[str]) -> dict[str, object]:
    """Return what `cassq serve` reads from its words."""
    return serve.make_context("serve", words).params


def directives_of(unit: Example) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", unit.code, re.MULTILINE))


def is_private(options: dict[str, object]) -> bool:
    """Tell whether no key is read on its way to the service."""
    return bool(options["trusted_proxy"] or options["tls_cert"] or options["host"] == "127.0.0.1")


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_a_unit_gives_the_service_the_time_that_it_takes_to_end(unit) -> None:
    told = directives_of(unit)
    command, *words = shlex.split(told["ExecStart"])[1:]
    options = options_of(words)

    assert command == "serve"
    assert is_private(options)
    assert int(told["TimeoutStopSec"].removesuffix("s")) > options["grace"] + options["grace_before"]
    assert options["processes"] == 1 or told["KillMode"] == "mixed"


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_systemd_takes_a_unit_as_it_stands(unit, tmp_path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze on PATH")
    file = tmp_path / "cassq-http.service"
    cassq = Path(sys.executable).with_name("cassq")
    file.write_text(unit.code.replace("/opt/cassq/bin/cassq", str(cassq)).replace("User=cassq", "User=root"))

    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False
    )

    assert (ended.returncode, [line for line in ended.stderr.splitlines() if file.name in line]) == (0, [])


@pytest.mark.parametrize("manifest", MANIFESTS, ids=str)
def test_a_manifest_gives_the_service_the_time_that_it_takes_to_end(manifest) -> None:
    deployment, service = yaml.safe_load_all(manifest.code)
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = options_of(["--host", "0.0.0.0", *container["args"]])
    probes = [container[name]["httpGet"]["path"] for name in ("readinessProbe", "livenessProbe")]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}

    assert is_private(options)
    assert pod["terminationGracePeriodSeconds"] > options["grace"] + options["grace_before"]
    readiness = container["readinessProbe"]
    assert options["grace_before"] > readiness["periodSeconds"] * readiness["failureThreshold"]
    assert probes == ["/readyz", "/healthz"]
    assert ports == {"http": options["port"], "metrics": options["metrics"]}
    assert service["spec"]["ports"][0]["targetPort"] == "http"
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert pod["securityContext"]["runAsNonRoot"]


def test_there_is_one_of_each() -> None:
    assert (len(UNITS), len(MANIFESTS)) == (1, 1)
