"""`cassq serve`: queues and topics over HTTP, until a signal.

Owns the words, and what is refused at the start: a door that lets in whom nobody meant to let in.
"""

import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TypedDict, Unpack

import click

import cassq
from cassq.cli.log_format import begin_log, log_format_option
from cassq.cli.output import say
from cassq.cli.session import Session, common_options
from cassq.gate.addresses import Proxies


class _Options(TypedDict):
    host: str
    port: int
    uds: str | None
    processes: int
    tls_cert: str | None
    tls_key: str | None
    client_ca: str | None
    trusted_proxy: tuple[str, ...]
    open: bool
    insecure: bool
    queuey: bool
    grace: int
    grace_before: int
    metrics: int | None
    access_log: bool
    log_format: str


_FILE = click.Path(exists=True, dir_okay=False)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS")
@click.option("--port", type=click.IntRange(0, 65535), default=8520, help="8520; 0 for any that is free.")
@click.option("--uds", metavar="PATH", help="Listen at a Unix socket, in the place of --host and --port.")
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="The certificate, with those between, as PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Its key.")
@click.option("--client-ca", type=_FILE, metavar="FILE", help="Clients need a certificate of one of these.")
@click.option(
    "--trusted-proxy",
    metavar="NETWORK",
    multiple=True,
    help="Whose X-Forwarded-For counts; `unix`: of --uds.",
)
@click.option("--open", is_flag=True, help="Without keys: everybody who gets here may do everything.")
@click.option("--insecure", is_flag=True, help="Take keys over connections that others can read.")
@click.option("--queuey", is_flag=True, help="Answer clients of Mozilla's Queuey, too.")
@click.option(
    "--grace", type=click.IntRange(0), default=20, metavar="SECONDS", help="For what is under way (20)."
)
@click.option(
    "--grace-before",
    type=click.IntRange(0),
    default=0,
    metavar="SECONDS",
    help="Go on listening for so long, while /readyz says 503 (0).",
)
@click.option(
    "--metrics", type=click.IntRange(1, 65535), metavar="PORT", help="Answer GET /metrics there, at --host."
)
@click.option("--access-log", is_flag=True, help="Tell each request; --debug does, too.")
@log_format_option
@common_options
@click.make_pass_decorator(Session)
def serve(session: Session, **options: Unpack[_Options]) -> None:
    """Answer HTTP: push, publish, follow, steer. `cassq application` says who may; SIGTERM ends it with 0.

    /openapi.json has all calls, /healthz and /readyz are for supervisors and balancers.
    """
    session.ending.begin(is_endless=True)
    url = session.require_url()
    try:
        from cassq.http.app import Opening  # noqa: PLC0415 - it may be missing
        from cassq.http.process import Listening, run  # noqa: PLC0415
    except ImportError as error:
        raise click.UsageError(f"cassq serve needs more: pip install 'cassq[http]' ({error})") from None
    if Proxies.of(options["trusted_proxy"]).is_unix and options["uds"] is None:
        raise click.UsageError("--trusted-proxy unix is for --uds: give the proxy's network")
    _check_private(options)
    tell = begin_log(session, options["log_format"])
    with cassq.connect(url):  # or it says here what is wrong
        pass
    listening = Listening(
        *(options["host"], options["port"], options["uds"], options["processes"]),
        *(options["tls_cert"], options["tls_key"], options["client_ca"], options["grace"]),
    )
    bound = listening.bind()
    opening = Opening(
        *(url, options["trusted_proxy"], options["open"], options["insecure"]),
        is_told=session.is_debug,
        is_queuey=options["queuey"],
        has_access_log=options["access_log"],
        log_format=options["log_format"],
        has_metrics=options["metrics"] is not None,
        grace_before_s=options["grace_before"],
    )
    with _metrics(options):
        tell(f"cassq: serving at {listening.where(bound)}")
        run(opening, listening, bound)


@contextmanager
def _metrics(options: _Options) -> Iterator[None]:
    if options["metrics"] is None:
        yield
        return
    with TemporaryDirectory(prefix="cassq-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # looked for once, as the next line imports it
        try:
            from cassq.metrics.service import serve_metrics  # noqa: PLC0415 - it may be missing
        except ImportError as error:
            raise click.UsageError(f"--metrics needs more: pip install 'cassq[metrics]' ({error})") from None
        with serve_metrics(options["host"], options["metrics"]):
            yield


def _check_private(options: _Options) -> None:
    """Refuse, or warn of, what lets in everybody, or shows keys to everybody."""
    if bool(options["tls_cert"]) is not bool(options["tls_key"]):
        raise click.UsageError("--tls-cert and --tls-key go together")
    if options["client_ca"] and not options["tls_cert"]:
        raise click.UsageError("--client-ca needs --tls-cert and --tls-key")
    is_local = options["uds"] is not None or _is_loopback(options["host"])
    if options["open"]:
        if not is_local or options["trusted_proxy"]:
            raise click.UsageError("--open is for --uds and for loopback addresses alone, without a proxy")
        say("cassq: everybody who gets here may do everything (--open)")
    elif not (is_local or options["tls_cert"] or options["trusted_proxy"] or options["insecure"]):
        raise click.UsageError(
            f"keys that come to {options['host']} could be read on their way: give --tls-cert and --tls-key, "
            "or --trusted-proxy of one that does TLS; --insecure takes them all the same"
        )
    if options["insecure"]:
        say("cassq: keys may be read on their way (--insecure)")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
