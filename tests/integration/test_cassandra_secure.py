"""A cluster that wants TLS and a password, or one datacenter of it: what gets in, what keeps others out."""

import json
import secrets
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
from cassandra.cluster import NoHostAvailable
from command_line import CommandLine

import cassq
from cassq.storage.cassandra import Address, CassandraSchema, CassandraStorage, open_session
from cassq.storage.cassandra.errors_map import tell_rejection
from cassq.storage.cassandra.schema import VERSION
from cassq.storage.cassandra.statement import Call

pytestmark = pytest.mark.service

SERVICES = Path(__file__).parents[2] / "tools" / "services"

#: Everything that means something in a URL, and some that does not.
PASSWORD = "p@ss:w/o?r#d%25&+=[é] ,'"
USER = "an app@orders:1"

#: What Cassandra ships with, and what another than it would have.
ADMIN = {"username": "cassandra", "password": "cassandra"}
SECRET = "not-the-Password-17"


@dataclass(frozen=True)
class Cluster:
    """A Cassandra that takes TLS and passwords only, with a keyspace of cassq's and a user."""

    address: str
    authority: str
    keyspace: str

    @property
    def url(self):
        return f"cassandra://{self.address}/{self.keyspace}"

    @property
    def user_url(self):
        user = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}"
        return f"cassandra://{user}@{self.address}/{self.keyspace}?tls_ca={quote(self.authority, safe='')}"

    @property
    def user(self):
        return {"tls_ca": self.authority, "username": USER, "password": PASSWORD}

    def session(self, **options):
        host, _, port = self.address.rpartition(":")
        tls = ssl.create_default_context(cafile=self.authority)
        return open_session(Address([(host, int(port))], tls=tls, **{**ADMIN, **options}), self.keyspace)


def services(command, directory, *arguments):
    done = subprocess.run(
        [sys.executable, SERVICES, command, "--dir", directory, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"tools/services {command} failed: {done.stderr}")
    return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("secure")
    wish = ("--only", "cassandra", "--auth", "--tls", "--with", "java", "--timeout", "400", "--json")
    try:
        started = json.loads(services("start", directory, *wish))
        cluster = Cluster(
            started["CASSQ_TEST_CASSANDRA"],
            started["CASSQ_TEST_CASSANDRA_CA"],
            f"cassq_secure_{secrets.token_hex(5)}",
        )
        session = cluster.session()
        CassandraSchema(session).apply()
        quoted = PASSWORD.replace("'", "''")
        session.define(
            f"CREATE ROLE \"{USER}\" WITH PASSWORD = '{quoted}' AND LOGIN = true AND SUPERUSER = true"
        )
        session.close()
        yield cluster
    finally:
        services("remove", directory)


@pytest.fixture(scope="module")
def other_authority(cluster, tmp_path_factory):
    """A certificate authority that signed nothing here: made as the cluster's own was."""
    sys.path.insert(0, str(SERVICES.parent))
    try:
        from _services import certificates, java  # noqa: PLC0415 # no package, but beside the command
    finally:
        sys.path.remove(str(SERVICES.parent))
    directory = tmp_path_factory.mktemp("other")
    certificates.make(java.find_java(), directory)
    return str(certificates.authority(directory))


def refusal(url, error=cassq.StorageUnavailableError, **options):
    """Return what an attempt to connect is told; it is told soon, and never a password."""
    begun = time.monotonic()
    with pytest.raises(error) as raised:
        cassq.connect(url, **options)
    assert time.monotonic() - begun < 10
    told = str(raised.value)
    assert options.get("password", SECRET) not in told
    assert SECRET not in told
    return told


def pushed_and_popped(store, name, body):
    queue = store.queue(name)
    queue.push(body)
    with queue.popper() as popper:
        delivery = popper.pop(timeout=30)
        assert delivery.body == body
        delivery.commit()


# -- TLS -----------------------------------------------------------------------------------------------


def test_messages_go_through_an_encrypted_store_named_by_options(cluster, zookeeper_address, name):
    with cassq.connect(cluster.url, zookeeper=zookeeper_address, **cluster.user) as store:
        pushed_and_popped(store, name, b"by options")


def test_messages_go_through_an_encrypted_store_named_by_a_url(cluster, zookeeper_address, name):
    with cassq.connect(f"{cluster.user_url}&zookeeper={zookeeper_address}") as store:
        pushed_and_popped(store, name, b"by url")
        assert PASSWORD not in store.url
        assert quote(PASSWORD, safe="") not in store.url


def test_every_connection_of_the_driver_is_encrypted(cluster):
    session = cluster.session()
    try:
        seen = session.ask("SELECT username, ssl_enabled FROM system_views.clients", Call.LOCAL)
    finally:
        session.close()

    assert seen
    assert {tuple(row) for row in seen} == {("cassandra", True)}


def test_a_store_without_tls_is_told_that_the_server_may_want_it(cluster):
    told = refusal(cluster.url, **ADMIN)

    assert cluster.address in told
    assert "tls=1" in told


def test_a_store_that_trusts_another_authority_is_told_so(cluster, other_authority):
    told = refusal(cluster.url, tls_ca=other_authority, **ADMIN)

    assert cluster.address in told
    assert "certificate is not trusted" in told
    assert "tls_ca" in told


def test_a_store_that_trusts_only_the_systems_authorities_is_told_so(cluster):
    assert "certificate is not trusted" in refusal(cluster.url, tls="1", **ADMIN)


def test_a_store_may_encrypt_without_looking_whom_it_talks_to(cluster):
    cassq.connect(cluster.url, tls="noverify", **ADMIN).close()


def test_a_store_with_tls_is_told_that_a_plain_server_does_not_speak_it(cluster, cassandra_address):
    told = refusal(f"cassandra://{cassandra_address}/cassq", tls_ca=cluster.authority)

    assert "does not speak TLS" in told


def test_a_store_without_a_certificate_is_told_that_one_is_asked_for():
    alert = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required")
    error = NoHostAvailable("none", {"10.0.0.1:9042": alert})

    told = tell_rejection(error, is_encrypted=True, has_user=True)

    assert "asks for a client certificate (tls_cert" in told
    assert "10.0.0.1:9042" in told


# -- user and password ---------------------------------------------------------------------------------


@pytest.mark.parametrize("username", [USER, "nobody"])
def test_a_wrong_user_name_or_password_is_told_as_that(cluster, username):
    told = refusal(
        cluster.url, cassq.AccessDeniedError, tls_ca=cluster.authority, username=username, password=SECRET
    )

    assert cluster.address in told
    assert "the user name or password was refused" in told


def test_a_wrong_password_in_a_url_does_not_show_either(cluster):
    url = f"cassandra://cassandra:{SECRET}@{cluster.address}/{cluster.keyspace}?tls_ca={cluster.authority}"

    assert "the user name or password was refused" in refusal(url, cassq.AccessDeniedError)


def test_a_store_without_a_user_name_is_told_that_one_is_asked_for(cluster):
    told = refusal(cluster.url, cassq.AccessDeniedError, tls_ca=cluster.authority)

    assert "asks for a user name and password" in told


@pytest.mark.parametrize("slip", ["/", "?", "?x=1&", "#", "[7]", "@", ":", "\u2100", "%"])
@pytest.mark.parametrize("end", ["", "?x", "?zoo=keeper", "?zookeeper_auth=p@q&zoo=keeper"])
def test_a_password_that_is_not_encoded_does_not_show(slip, end):
    with pytest.raises(cassq.InvalidOptionError) as raised:
        cassq.connect(f"cassandra://app:{SECRET}{slip}{SECRET}@127.0.0.1{end}")

    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("query", ["password={}&zoo=keeper", "password={}&zoo", "zookeeper_auth={}"])
def test_a_password_among_the_options_does_not_show(query):
    with pytest.raises(cassq.InvalidOptionError) as raised:
        cassq.connect(f"cassandra://127.0.0.1/cassq?{query.format(SECRET)}")

    assert SECRET not in str(raised.value)


# -- permissions ---------------------------------------------------------------------------------------


OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"

#: Each command, and what it may need of stdin.
WORK = [
    (("queue", "create", "{name}-2"), b""),
    (("push", "{name}"), b"a message"),
    (("pop", "{name}", "--commit"), b""),
    (("queue", "pause", "{name}"), b""),
    (("queue", "resume", "{name}"), b""),
    (("queue", "purge", "{name}", "--yes"), b""),
    (("reap",), b""),
    (("doctor",), b""),
    (("queue", "delete", "{name}", "--yes"), b""),
]
MONITORING = [
    (("queue", "list"), b""),
    (("queue", "stats", "{name}"), b""),
    (("queue", "pipes", "{name}"), b""),
    (("peek", "{name}"), b""),
    (("dead", "list", "{name}"), b""),
    (("schema", "check"), b""),
    (("schema", "version"), b""),
    (("doctor", "--read-only"), b""),
]


@pytest.fixture(scope="module")
def roles(cluster):
    """The roles of the page, made by its own statements."""
    block = OPERATIONS.read_text().split("### Permissions")[1].split("```sql\n")[1].split("```")[0]
    lines = [line for line in block.splitlines() if line.startswith("GRANT")]
    names = {line.rpartition(" ")[2].rstrip(";") for line in lines}
    session = cluster.session()
    for name in [*sorted(names), "cassq_nobody"]:
        session.define(f"CREATE ROLE {name} WITH PASSWORD = 'a-Word-17' AND LOGIN = true")
    for line in lines:
        session.define(line.rstrip(";").replace("KEYSPACE cassq ", f"KEYSPACE {cluster.keyspace} "))
    session.close()
    assert names == {"cassq_work", "cassq_monitoring", "cassq_schema"}


@pytest.fixture
def command_line(cluster, roles, zookeeper_address):
    """A command line for each role."""

    def make(role, keyspace=cluster.keyspace):
        tail = f"{keyspace}?tls_ca={quote(cluster.authority, safe='')}&zookeeper={zookeeper_address}"
        return CommandLine(f"cassandra://{role}:a-Word-17@{cluster.address}/{tail}")

    return make


def test_the_role_for_work_can_do_its_work(command_line, name):
    cli = command_line("cassq_work")
    cli.ok("queue", "create", name)

    for arguments, stdin in WORK:
        cli.ok(*(each.format(name=name) for each in arguments), stdin=stdin)


def test_the_role_for_monitoring_can_look_and_changes_nothing(command_line, name):
    command_line("cassq_work").ok("queue", "create", name)
    command_line("cassq_work").ok("push", name, stdin=b"a message")
    cli = command_line("cassq_monitoring")

    for arguments, _ in MONITORING:
        cli.ok(*(each.format(name=name) for each in arguments))
    for arguments, stdin in WORK:
        if arguments[0] not in ("doctor", "reap", "pop"):
            done = cli.run(*(each.format(name=name) for each in arguments), stdin=stdin)
            assert done.returncode == 77, (arguments, done.stderr)
            assert "no MODIFY permission" in done.stderr


def test_a_role_that_may_not_write_is_refused_a_pass_of_the_reaper(command_line, name):
    work = command_line("cassq_work")
    work.ok("queue", "create", name, "--push-age-max", "100ms", "--push-grace", "100ms")
    work.ok("push", name, stdin=b"a message")
    work.ok("pop", name, "--exec", "true")  # its pipe is over, and stays until a later pass

    done = command_line("cassq_monitoring").run("reap")

    assert done.returncode == 77
    assert "no MODIFY permission" in done.stderr
    work.ok("reap")


def test_doctor_names_every_permission_that_is_missing(command_line):
    done = command_line("cassq_nobody").run("doctor", "--json")

    checks = json.loads(done.stdout)["checks"]
    found = [each for each in checks if (each["check"], each["level"]) == ("permissions", "fail")]
    assert done.returncode == 1
    assert [words.split()[1] for words in found[0]["way_out"].split("; ")] == ["SELECT", "MODIFY"]
    (schema,) = [each for each in checks if each["check"] == "schema"]
    assert "no SELECT permission" in schema["told"]


def test_doctor_says_what_a_role_that_may_only_read_cannot_do(command_line):
    cli = command_line("cassq_monitoring")

    done = cli.run("doctor", "--json")

    (found,) = [each for each in json.loads(done.stdout)["checks"] if each["check"] == "permissions"]
    assert (done.returncode, found["level"]) == (1, "fail")
    assert "pushes, pops and commits are refused" in found["told"]
    watching = cli.json("doctor", "--read-only")
    assert watching["counts"]["fail"] == 0


def test_doctor_says_what_it_was_not_let_look_at(command_line):
    checks = command_line("cassq_work").json("doctor")["checks"]

    hints = [each["told"] for each in checks if (each["check"], each["level"]) == ("permissions", "hint")]
    assert hints == [
        "system_distributed and system_views may not be read: settings, hints or repairs were not looked at"
    ]


def test_the_role_for_schemas_can_bring_one_up_and_mend_it(cluster, command_line):
    cli = command_line("cassq_schema")
    session = cluster.session()
    session.define(f"ALTER TABLE {cluster.keyspace}.statistics WITH gc_grace_seconds = 60")
    session.define(f"DROP TABLE {cluster.keyspace}.statistics")
    session.define(f"ALTER TABLE {cluster.keyspace}.dead WITH comment = 'none'")
    session.close()

    applied = cli.json("schema", "apply")

    assert applied["left"] == []
    assert len(applied["mended"]) == 2
    assert cli.json("schema", "check") == {"differences": []}


def test_who_makes_the_tables_needs_no_more_than_the_right_to(cluster, command_line):
    keyspace = f"cassq_made_{secrets.token_hex(5)}"
    session = cluster.session()
    session.define(
        f"CREATE KEYSPACE {keyspace} WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    session.define(f"GRANT CREATE ON KEYSPACE {keyspace} TO cassq_nobody")
    cli = command_line("cassq_nobody", keyspace)

    cli.ok("schema", "apply")

    session.define(f"ALTER TABLE {keyspace}.dead WITH comment = 'none'")
    assert len(cli.json("schema", "apply")["mended"]) == 1
    assert cli.json("schema", "check") == {"differences": []}
    session.define(f"DROP KEYSPACE {keyspace}")
    session.close()


@pytest.mark.parametrize("role", ["cassq_work", "cassq_monitoring"])
def test_a_role_without_the_right_to_change_the_schema_is_told_at_once(cluster, command_line, role):
    session = cluster.session()
    session.define(f"ALTER TABLE {cluster.keyspace}.dead WITH comment = 'none'")

    done = command_line(role).run("schema", "apply")

    CassandraSchema(session).apply()
    session.close()
    assert done.returncode == 77
    assert "no ALTER permission" in done.stderr


@pytest.mark.parametrize(
    "arguments", [("queue", "list"), ("push", "orders"), ("pop", "orders"), ("schema", "check")]
)
def test_a_role_that_may_do_nothing_is_told_what_it_lacks(command_line, arguments):
    done = command_line("cassq_nobody").run(*arguments, stdin=b"a message")

    assert done.returncode == 77
    assert "no SELECT permission" in done.stderr


def push_for_ever(queue):
    while True:
        queue.push(b"next", timeout=60)


def test_a_push_that_loses_its_permission_fails_at_once(cluster, command_line, name):
    with cassq.connect(command_line("cassq_work").url) as store:
        queue = store.queue(name)
        queue.push(b"first")
        session = cluster.session()
        session.define(f"REVOKE MODIFY ON KEYSPACE {cluster.keyspace} FROM cassq_work")
        try:
            with pytest.raises(cassq.AccessDeniedError, match="no MODIFY permission"):
                push_for_ever(queue)  # the server remembers permissions for two seconds
        finally:
            session.define(f"GRANT MODIFY ON KEYSPACE {cluster.keyspace} TO cassq_work")
            session.close()


# -- datacenter ----------------------------------------------------------------------------------------


class TracedDriver:
    """The driver's session, with every request traced."""

    def __init__(self, driver):
        self._driver = driver
        self.requests = []

    def __getattr__(self, name):
        return getattr(self._driver, name)

    def execute_async(self, query, execution_profile):
        future = self._driver.execute_async(query, trace=True, execution_profile=execution_profile)
        self.requests.append((Call(execution_profile), future))
        return future

    def levels(self):
        """Return the levels at which the server carried out one request of each kind."""
        found = {call: future.get_query_trace(max_wait=30) for call, future in dict(self.requests).items()}
        return {call: _levels(trace.parameters) for call, trace in found.items()}


def _levels(parameters):
    return parameters["consistency_level"], parameters["serial_consistency_level"]


@pytest.mark.parametrize(
    ("datacenter", "quorum", "serial"),
    [("datacenter1", "LOCAL_QUORUM", "LOCAL_SERIAL"), (None, "QUORUM", "SERIAL")],
)
def test_statements_run_at_the_levels_of_the_datacenter(
    cluster, zookeeper_address, name, datacenter, quorum, serial, monkeypatch
):
    url = f"{cluster.user_url}&zookeeper={zookeeper_address}"
    with cassq.connect(f"{url}&datacenter={datacenter}" if datacenter else url) as store:
        storage = store.storage
        while not isinstance(storage, CassandraStorage):
            storage = storage._storage
        session = storage._session
        traced = TracedDriver(session._driver)
        monkeypatch.setattr(session, "_driver", traced)
        pushed_and_popped(store, name, b"traced")
        levels = traced.levels()

    assert levels == {
        Call.WRITE: (quorum, serial),
        Call.READ: (quorum, serial),
        Call.SERIAL_READ: (serial, serial),
        Call.TRANSACTION: (quorum, serial),
        Call.LOCAL: ("LOCAL_ONE", serial),
    }


@pytest.mark.parametrize("datacenter", ["datacenter2", "Datacenter1"])
def test_a_datacenter_that_does_not_exist_is_named_with_those_that_do(cluster, datacenter):
    told = refusal(cluster.url, cassq.InvalidOptionError, datacenter=datacenter, **cluster.user)

    assert cluster.address in told
    assert repr(datacenter) in told
    assert "it has 'datacenter1'" in told


# -- the command line ----------------------------------------------------------------------------------


def test_the_command_line_brings_up_a_schema_and_never_shows_the_password(cluster, zookeeper_address):
    keyspace = f"cassq_secure_{secrets.token_hex(5)}"
    url = cluster.user_url.replace(cluster.keyspace, keyspace)
    cli = CommandLine(f"{url}&datacenter=datacenter1&zookeeper={zookeeper_address}")

    applied = cli.json("schema", "apply", "--replication", "datacenter1:1")
    assert applied == {"version": VERSION, "mended": [], "left": [], "statements": []}
    examined = cli.run("doctor")
    wrong = cli.run("doctor", env={**cli.env, "CASSQ_URL": cli.url.replace("%40ss", SECRET)})

    assert examined.returncode == 0, examined.stdout
    assert wrong.returncode == 1
    assert "the user name or password was refused" in wrong.stdout
    for done in (examined, wrong):
        for secret in (PASSWORD, quote(PASSWORD, safe=""), SECRET):
            assert secret not in done.stdout + done.stderr
