"""The certificate of Cassandra servers that speak TLS.

Owns one self-signed certificate for each directory of services: a keystore for the servers, and the same
certificate as PEM for their clients. Refuses to be safe: its password stands below, for loopback only.

What must not break: it is made once and kept until `remove`. A restart finds its clients trusting it.
"""

import shutil
import subprocess
from pathlib import Path

from _services.errors import ServicesError

#: Of the keystore; keytool takes no shorter one.
PASSWORD = "cassandra"  # noqa: S105 # it keeps no secret

_NAMES = "dns:localhost," + ",".join(f"ip:127.0.0.{number}" for number in (1, 2, 3))


def keystore(directory: Path) -> Path:
    """Return where the servers' keystore is, in a directory of services."""
    return directory / "tls" / "keystore.p12"


def authority(directory: Path) -> Path:
    """Return where the PEM file is that clients trust, in a directory of services."""
    return directory / "tls" / "ca.pem"


def make(java: Path, directory: Path) -> None:
    """Make both files with the keytool beside `java`, if they are not there yet.

    Raises:
        ServicesError: keytool could not; its words are told.
    """
    if authority(directory).exists():
        return
    shutil.rmtree(keystore(directory).parent, ignore_errors=True)  # an interrupted start left half of it
    keystore(directory).parent.mkdir(parents=True)
    draft = authority(directory).with_suffix(".new")
    for arguments in (make_arguments(keystore(directory)), export_arguments(keystore(directory), draft)):
        _run([str(java.resolve().with_name("keytool")), *arguments])
    draft.replace(authority(directory))


def remove(directory: Path) -> None:
    """Delete both files. Idempotent."""
    shutil.rmtree(keystore(directory).parent, ignore_errors=True)


def make_arguments(store: Path) -> list[str]:
    """Return what keytool is told to make a keystore with a key and its certificate."""
    key = ["-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3650", "-dname", "CN=cassq services"]
    # Its own authority, as whoever verifies strictly wants one to be.
    extensions = ["bc:critical=ca:true", "ku:critical=keyCertSign,digitalSignature", f"san={_NAMES}"]
    named = [word for extension in extensions for word in ("-ext", extension)]
    return ["-genkeypair", *_entry(store), *key, *named]


def export_arguments(store: Path, target: Path) -> list[str]:
    """Return what keytool is told to write the certificate as PEM."""
    return ["-exportcert", *_entry(store), "-rfc", "-file", str(target)]


def _entry(store: Path) -> list[str]:
    return ["-alias", "cassq", "-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ServicesError(f"keytool cannot be run: {error}") from error
    if done.returncode != 0:
        raise ServicesError(f"keytool could not make a certificate: {(done.stdout + done.stderr).strip()}")
