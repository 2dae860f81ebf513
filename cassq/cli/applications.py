"""`cassq application …`: who may use the HTTP service, and by which keys.

Owns nothing but words. What must not break: a key is printed once, as it is made, and is never an argument.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypedDict, Unpack

import click

import cassq
from cassq.cli.output import count_of, print_json, print_table, say
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.values import to_time
from cassq.gate import Application, Applications, Right, to_networks
from cassq.gate.applications import check_rate

RIGHTS = [right.value for right in Right]


class _Options(TypedDict):
    rights: tuple[str, ...]
    allow: tuple[str, ...]
    rate: float | None


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--rate", type=float, metavar="N", help="Each key so often a second, by process; 0: no bound."
        ),
        click.option(
            "--allow",
            metavar="NETWORK",
            multiple=True,
            help="Only from here, as 10.0.0.0/8; may be repeated.",
        ),
        click.option(
            "--rights",
            callback=_to_rights,
            metavar="RIGHT[,…]",
            help=f"Of {', '.join(RIGHTS)}.  [push,pop,look]",
        ),
    ):
        command = option(command)
    return command


def _to_rights(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[str, ...]:
    words = tuple(text.split(",")) if text else ()
    for word in words:
        if word not in RIGHTS:
            raise click.BadParameter(f"{word!r} is no right: {', '.join(RIGHTS)}")
    return words


@click.group("application")
def applications() -> None:
    """Say who may use the HTTP service: applications, their rights and keys.

    An application has the queues and topics that begin with its name and a dot. All processes of the service
    hear of a change within two seconds.
    """


@contextmanager
def _opened(session: Session) -> Iterator[Applications]:
    with session.store() as store:
        yield Applications(store.storage)


@applications.command()
@click.argument("name")
@_options
@common_options
@pass_session
def create(session: Session, name: str, **options: Unpack[_Options]) -> None:
    """Create an application; `cassq application key add` gives it a key."""
    rights = frozenset(map(Right, options["rights"] or ("push", "pop", "look")))
    made = Application(name, rights, to_networks(options["allow"]), options["rate"] or None)
    with _opened(session) as opened:
        opened.create(made)
    _tell(session, made, f"application {name} is created, without a key")


@applications.command()
@click.argument("name")
@_options
@common_options
@pass_session
def alter(session: Session, name: str, **options: Unpack[_Options]) -> None:
    """Give an application other rights, networks (`--allow ""`: all) or another rate; the rest stays."""
    changes: dict[str, Any] = {}
    if options["rights"]:
        changes["rights"] = frozenset(map(Right, options["rights"]))
    if options["allow"]:
        changes["allow"] = to_networks(each for each in options["allow"] if each)
    if options["rate"] is not None:
        changes["rate"] = check_rate(options["rate"] or None)
    if not changes:
        raise click.UsageError("name what to alter: --rights, --allow or --rate")
    with _opened(session) as opened:
        altered = opened.alter(name, lambda seen: replace(seen, **changes))
    _tell(session, altered, f"application {name} is altered")


@applications.command("list")
@common_options
@pass_session
def list_applications(session: Session) -> None:
    """List the applications of a store, and their keys' ids."""
    with _opened(session) as opened:
        found = [_to_json(each) for each in opened.all(lambda error: say(f"cassq: {error}"))]
    if session.is_json:
        print_json(found)
        return
    joined = ("rights", "allow")
    print_table(
        [
            {**each, **{name: ",".join(each[name]) or None for name in joined}, "keys": len(each["keys"])}
            for each in found
        ]
    )


@applications.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
@pass_session
def delete(session: Session, name: str, *, yes: bool) -> None:
    """Delete an application and its keys; its queues and topics stay."""
    with _opened(session) as opened:
        session.confirm(f"Delete application {name!r} with all its keys?", is_sure=yes)
        opened.delete(name)
    if session.is_json:
        print_json({"application": name, "state": "deleted"})
    else:
        say(f"application {name} is deleted; its queues and topics stand")


@applications.group("key")
def keys() -> None:
    """Add, list and revoke keys."""


@keys.command()
@click.argument("name")
@click.option(
    "--expires", type=to_time, metavar="TIME", help="Good until then: in ISO 8601, with a time zone."
)
@click.option("--allow", metavar="NETWORK", multiple=True, help="Only from here; may be repeated.")
@common_options
@pass_session
def add(session: Session, name: str, expires: datetime | None, allow: tuple[str, ...]) -> None:
    """Print a fresh key of an application. Nobody can read it again; only its hash is stored."""
    with _opened(session) as opened:
        if expires is not None and expires <= datetime.now(UTC):
            raise cassq.InvalidOptionError(
                f"--expires {expires.isoformat()} is over: the key would let nobody in"
            )
        key = opened.add_key(name, expires, allow)
    if session.is_json:
        print_json({"application": name, "key_id": key.id, "key": str(key)})
    else:
        click.echo(str(key))
        say(f"cassq: key {key.id} of application {name}; it is shown this once")


@keys.command("list")
@click.argument("name")
@common_options
@pass_session
def list_keys(session: Session, name: str) -> None:
    """List the keys of an application by their ids, which are public."""
    with _opened(session) as opened:
        found = {each.name: each for each in opened.all(lambda error: say(f"cassq: {error}"))}
    if name not in found:
        raise cassq.ApplicationNotFoundError(f"there is no application {name!r}")
    told = _to_json(found[name])["keys"]
    if session.is_json:
        print_json(told)
    else:
        print_table([{**each, "allow": ",".join(each["allow"]) or None} for each in told])
        say(f"cassq: {count_of(len(told), 'key')}")


@keys.command()
@click.argument("name")
@click.argument("key_id")
@common_options
@pass_session
def revoke(session: Session, name: str, key_id: str) -> None:
    """Revoke a key by its id: within two seconds no process lets it in, and what it follows ends."""
    with _opened(session) as opened:
        opened.revoke_key(name, key_id)
    if session.is_json:
        print_json({"application": name, "key_id": key_id, "state": "revoked"})
    else:
        say(f"key {key_id} of application {name} is revoked")


def _tell(session: Session, application: Application, words: str) -> None:
    if session.is_json:
        print_json(_to_json(application))
    else:
        say(words)


def _to_json(application: Application) -> dict[str, Any]:
    """Return an application as JSON values, without what is stored of its keys."""
    told = application.to_json()
    keys_told = [
        {"key_id": each, **{name: value for name, value in key.items() if name != "digest"}}
        for each, key in told.pop("keys").items()
    ]
    return {"application": application.name, **told, "keys": keys_told}
