"""Which worker a command line means: MODULE:NAME.

Owns the import. What must not break: what is wrong with the name is told in one line; an error inside of the
module keeps its traceback.
"""

import importlib
import inspect
import sys
from pathlib import Path

import click

import cassq


def load(target: str) -> cassq.Worker:
    """Import a worker, or call what makes one.

    Raises: UsageError: there is no such module or name, or it is no worker.
    """
    module_name, _, name = target.partition(":")
    if not module_name or not name or module_name.startswith("."):
        raise click.UsageError(f"{target!r} names no worker: write MODULE:NAME, as in orders.worker:worker")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise click.UsageError(f"there is no module {module_name!r} here, nor on PYTHONPATH") from None
        raise
    found = getattr(module, name, None)
    if found is None:
        raise click.UsageError(f"module {module_name!r} has no {name!r}")
    if callable(found) and not isinstance(found, cassq.Worker):
        try:
            inspect.signature(found).bind()
        except (TypeError, ValueError) as error:
            raise click.UsageError(f"{target!r} is to be called without arguments: {error}") from None
        found = found()
    if not isinstance(found, cassq.Worker):
        raise click.UsageError(f"{target!r} is a {type(found).__name__}, no cassq.Worker, and makes none")
    return found
