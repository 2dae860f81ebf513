"""What the console script `cassq` calls first.

Owns the time in which the command line is imported, longer than many a command takes: signals that would end
the process wait until there is somebody who knows what they mean. It is no part of the package `cassq`, whose
import takes that time. What must not break: whoever imports `cassq` as a library keeps signals as they are.
"""

import signal


def main() -> None:
    """Import the command line, run it and exit."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    from cassq.cli import main as command_line  # noqa: PLC0415 - this is what the signals wait for

    command_line.main(mask)
