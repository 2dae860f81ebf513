"""The page on a real cluster: its program, submitted by its command to executors of their own."""

import os
import shlex
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pyspark
import pytest

import cassq

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "spark-cluster.md"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


def marked(language):
    """Return the marked block of the page in a language."""
    return PAGE.read_text().split(f"<!-- test: submit -->\n```{language}\n")[1].split("```")[0]


@pytest.fixture
def folder(tmp_path):
    """What the page packs, but small: an environment that borrows the packages of this one."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    here = [sysconfig.get_path("purelib"), str(Path(cassq.__file__).parents[1])]
    (packages / "borrowed.pth").write_text("\n".join(here))
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as archive:
        for each in environment.iterdir():
            archive.add(each, each.name)
    (tmp_path / "count_orders.py").write_text(marked("python"))
    return tmp_path


def test_the_program_of_the_page_runs_on_executors(folder):
    with cassq.connect(f"sqlite:///{folder}/orders.db") as store:
        store.queue("orders").push_many([b"one", b"two", b"three"])
    lines = [line.removeprefix("$ ") for line in marked("console").splitlines()]
    script = "\n".join(lines).replace(
        "spark-submit", shlex.join([str(SUBMIT), "--conf", "spark.ui.enabled=false"])
    )

    done = subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": os.environ.get("HOME", "/"),
            "MASTER": "local-cluster[2,1,1024]",
            "CASSQ_URL": f"sqlite:///{folder}/orders.db",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(SUBMIT.parents[1]),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert "orders: 3" in done.stdout
