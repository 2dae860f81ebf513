"""The jars of rivals that are written in Java, fetched by an ordinary Maven.

Refuses to build anything: Maven works out the class path of a pom.xml, once, and when a jar is gone.
"""

import os
import shutil
from pathlib import Path

from _bench.errors import BenchError
from _bench.rivals import debian
from _bench.rivals.program import run

_POMS = Path(__file__).with_name("java")


def class_path(name: str, version: str) -> str:
    """Return the jars that `java/NAME.xml` asks for.

    Args:
        version: that of the pom.xml; another one is asked for anew.

    Raises:
        BenchError: there is no Maven, or it failed.
    """
    kept = debian.CACHE / f"{name}-{version}.classpath"
    if not kept.exists() or not all(Path(jar).exists() for jar in kept.read_text().split(os.pathsep)):
        maven = shutil.which("mvn")
        if maven is None:
            raise BenchError(f"Maven (mvn) is needed once, to fetch {name}: apt-get install maven")
        kept.parent.mkdir(parents=True, exist_ok=True)
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={kept}"]
        run([maven, "-B", "-q", "-f", _POMS / f"{name}.xml", *goal])
    return kept.read_text().strip()
