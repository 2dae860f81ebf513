"""Java 17 and the class path of the servers, from this machine and an ordinary Maven.

Owns finding Java, and asking Maven once for the jars that pom.xml names. Refuses to install anything
outside Maven's own repository.
"""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from _services.errors import MissingError, ServicesError

_POM = Path(__file__).with_name("pom.xml")
_MAJOR = "17"
_INSTALL = "apt-get install openjdk-17-jre-headless maven"


def find_java() -> Path:
    """Return a Java 17, the only one that Cassandra 5.0 and these flags were tried with.

    Raises:
        MissingError: there is none in JAVA_HOME, on the PATH or where Linux distributions put it.
    """
    candidates = [Path(home, "bin/java") for home in [os.environ.get("JAVA_HOME")] if home]
    candidates += [Path(found) for found in [shutil.which("java")] if found]
    candidates += sorted(Path("/usr/lib/jvm").glob(f"*{_MAJOR}*/bin/java"))
    seen = [f"{path} is {version}" for path in candidates if (version := _major(path)) != _MAJOR]
    for path in candidates:
        if _major(path) == _MAJOR:
            return path
    found = f" ({', '.join(seen)})" if seen else ""
    raise MissingError(f"Java {_MAJOR} is needed and not found{found}. Debian: {_INSTALL}")


def _major(java: Path) -> str:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return "unusable"
    match = re.search(r'version "(\d+)', answer.stderr)
    return match.group(1) if match else "unknown"


def class_path(log: Path) -> str:
    """Return the jars of both servers, fetched by Maven the first time.

    The answer is kept beside Maven's repository, for every checkout with the same pom.xml; it is asked
    for again when a jar is gone.
    """
    digest = hashlib.sha256(_POM.read_bytes()).hexdigest()[:16]
    kept = Path.home() / ".m2" / "cassq-services" / f"{digest}.classpath"
    if kept.exists():
        jars = kept.read_text().strip()
        if jars and all(Path(jar).exists() for jar in jars.split(os.pathsep)):
            return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingError(f"Maven (mvn) is needed once, to fetch the jars. Debian: {_INSTALL}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    draft = kept.with_suffix(f".{os.getpid()}.new")
    command = [maven, "-B", "-q", "-f", str(_POM), "dependency:build-classpath"]
    with log.open("ab") as output:
        done = subprocess.run(
            [*command, f"-Dmdep.outputFile={draft}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    if done.returncode != 0 or not draft.exists():
        raise ServicesError(f"Maven could not fetch the jars; it says why in {log}")
    draft.replace(kept)
    return kept.read_text().strip()
