"""`cassq serve`: queues and topics over HTTP, until a signal.

Owns the words, and what is refused at the start: a door that lets in whom nobody meant to let in.
"""

import ipaddress
from typing import TypedDict, Unpack

import click

import cassq
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
    with cassq.connect(url):  # or it says here what is wrong
        pass
    listening = Listening(
        *(options["host"], options["port"], options["uds"], options["processes"]),
        *(options["tls_cert"], options["tls_key"], options["client_ca"], options["grace"]),
    )
    bound = listening.bind()
    say(f"cassq: serving at {listening.where(bound)}")
    opening = Opening(
        *(url, options["trusted_proxy"], options["open"], options["insecure"]),
        is_told=session.is_debug,
        is_queuey=options["queuey"],
    )
    run(opening, listening, bound)


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
