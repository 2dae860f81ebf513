"""A Kafka broker that is its own controller.

Owns fetching, starting and ending it. It comes with its own settings but for addresses and copies: an
acknowledged record is in the kernel's memory, and on the disk when the kernel writes it.
"""

import base64
import uuid
from pathlib import Path

from _services.java import find_java
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from _bench.rivals.maven import class_path
from _bench.rivals.program import LOOPBACK, Program, choose_port, run

VERSION = "4.4.0"
_HEAP = ["-Xms512m", "-Xmx1g"]


class KafkaServer:
    """One broker."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self.address = ""

    def start(self, folder: Path) -> None:
        """Start it, empty."""
        java, jars = find_java(), class_path("kafka", VERSION)
        self.address = f"{LOOPBACK}:{choose_port()}"
        controller = f"{LOOPBACK}:{choose_port()}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": folder / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }
        path = folder / "kafka.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        environment = {"CLASSPATH": jars}
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        run([java, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", path], environment)
        self._program = Program("kafka", [java, *_HEAP, "kafka.Kafka", path], folder, environment=environment)
        self._program.wait_until(lambda: self._admin().list_topics(timeout=2))

    def make_topic(self, name: str) -> None:
        """Make a topic of one partition."""
        admin = self._admin()  # what it was asked ends with it
        admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])[name].result(30)

    def _admin(self) -> AdminClient:
        # What it says while the broker begins is no news.
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def stop(self) -> None:
        """End the broker."""
        if self._program:
            self._program.stop()
