"""ElasticMQ, which speaks the API of Amazon's SQS; messages are in its memory.

Owns its server and its dialect.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from _bench.errors import BenchError
from _bench.http.connection import Answer, to_request
from _bench.http.dialect import Popped, ask_once
from _bench.rivals import maven
from _bench.rivals.program import LOOPBACK, Program, choose_port

#: Also in java/elasticmq.xml.
VERSION = "1.6.9"

_QUEUE = "bench"
_PULLED_MAX = 10


class _Message(msgspec.Struct, rename="pascal"):
    body: str
    receipt_handle: str


class _Received(msgspec.Struct, rename="pascal"):
    messages: list[_Message] = []


class _Done(msgspec.Struct, rename="pascal"):
    failed: list[object] = []


_received = msgspec.json.Decoder(_Received)
_done = msgspec.json.Decoder(_Done)


@dataclass(frozen=True, slots=True)
class SqsDialect:
    """SQS in JSON."""

    push_max: int = _PULLED_MAX
    pop_max: int = _PULLED_MAX

    @property
    def setup(self) -> Sequence[bytes]:
        """Make the queue."""
        return [_ask("CreateQueue", QueueName=_QUEUE, Attributes={"VisibilityTimeout": "60"})]

    def push_one(self, body: bytes) -> bytes:
        """Send."""
        return _ask("SendMessage", MessageBody=body.decode())

    def push_many(self, bodies: Sequence[bytes]) -> bytes:
        """Send up to ten."""
        entries = [{"Id": str(place), "MessageBody": body.decode()} for place, body in enumerate(bodies)]
        return _ask("SendMessageBatch", Entries=entries)

    def check(self, answer: bytes) -> None:
        """Raise where one of several failed."""
        if answer and _done.decode(answer).failed:
            raise BenchError(f"ElasticMQ refused some: {answer[:500]!r}")

    def pop(self, count: int, wait_s: float) -> bytes:
        """Receive."""
        return _ask("ReceiveMessage", MaxNumberOfMessages=count, WaitTimeSeconds=round(wait_s))

    def read(self, answer: bytes) -> Popped:
        """Read messages; deleting them is one request."""
        found = _received.decode(answer).messages if answer else []
        if not found:
            return Popped([], None)
        handles = [each.receipt_handle for each in found]
        if len(handles) == 1:
            ack = _ask("DeleteMessage", ReceiptHandle=handles[0])
        else:
            entries = [{"Id": str(place), "ReceiptHandle": each} for place, each in enumerate(handles)]
            ack = _ask("DeleteMessageBatch", Entries=entries)
        return Popped([each.body.encode() for each in found], ack)


def _ask(action: str, **fields: object) -> bytes:
    place = {"QueueUrl": f"http://localhost/000000000000/{_QUEUE}"} if action != "CreateQueue" else {}
    headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{action}"}
    return to_request("POST", "/", msgspec.json.encode({**place, **fields}), headers)


class ElasticMQ:
    """Its server."""

    name = "ElasticMQ"
    durability = "nothing: it is in memory"
    dialect = SqsDialect()

    def __init__(self) -> None:
        self._program: Program | None = None
        self.port = 0

    def version(self) -> str:
        """Tell which one it is."""
        return VERSION

    def start(self, folder: Path) -> None:
        """Start it, empty."""
        java = shutil.which("java")
        if java is None:
            raise BenchError("Java is needed for ElasticMQ: apt-get install openjdk-17-jre-headless")
        jars = maven.class_path("elasticmq", VERSION)
        self.port = choose_port()
        settings = folder / "elasticmq.conf"
        settings.write_text(
            'include classpath("application.conf")\n'
            f'node-address {{ protocol = http, host = localhost, port = {self.port}, context-path = "" }}\n'
            f'rest-sqs {{ enabled = true, bind-hostname = "{LOOPBACK}", bind-port = {self.port} }}\n'
            "rest-stats { enabled = false }\n"
        )
        words = [java, "-Xmx1g", f"-Dconfig.file={settings}", "-cp", jars, "org.elasticmq.server.Main"]
        self._program = Program("elasticmq", words, folder, environment=dict(os.environ))
        self._program.wait_until(self._answers)

    def _answers(self) -> Answer:
        return ask_once(self.port, _ask("ListQueues"))

    def stop(self) -> None:
        """End it."""
        if self._program:
            self._program.stop()
            self._program = None
