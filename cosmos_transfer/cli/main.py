"""``cosmos-transfer COMMAND ...``: find the command, run it, make its outcome an exit code.

====  =========================================================================
code  meaning
====  =========================================================================
0     done
1     a bug (with its traceback), or some requests of several failed
2     a mistake in what was asked: one line on stderr says where and what to do
130   interrupted
====  =========================================================================
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

import cosmos_transfer
from cosmos_transfer.errors import ConfigError, TransferError, explain

USER_MISTAKE = 2
INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command and the module whose ``main(argv)`` runs it."""

    name: str
    module: str
    summary: str


COMMANDS = (
    Command(
        name="generate",
        module="cosmos_transfer.cli.generate",
        summary="make a new clip from a clip, its controls and a prompt",
    ),
    Command(
        name="stream",
        module="cosmos_transfer.cli.stream",
        summary="restyle frames from a pipe or a folder as they come",
    ),
    Command(
        name="validate",
        module="cosmos_transfer.cli.validate",
        summary="check a request and print its plan; loads no model",
    ),
    Command(
        name="demo",
        module="cosmos_transfer.cli.demo",
        summary="render two clips, run the embedded model on them",
    ),
    Command(
        name="app",
        module="cosmos_transfer.cli.app",
        summary="the studio: a page in the browser",
    ),
    Command(
        name="show",
        module="cosmos_transfer.cli.show",
        summary="draw the contact sheet of a result",
    ),
    Command(
        name="evaluate",
        module="cosmos_transfer.cli.evaluate",
        summary="measure a result against its controls",
    ),
    Command(
        name="train",
        module="cosmos_transfer.cli.train",
        summary="train the autoencoder, the base or the control branches",
    ),
    Command(
        name="embed",
        module="cosmos_transfer.cli.embed",
        summary="encode prompts once, for machines without the text encoder",
    ),
    Command(
        name="plan",
        module="cosmos_transfer.cli.plan",
        summary="what a request costs in memory, before it runs",
    ),
    Command(
        name="prune",
        module="cosmos_transfer.cli.prune",
        summary="a smaller checkpoint with zeros among its weights",
    ),
    Command(
        name="batch",
        module="cosmos_transfer.cli.batch",
        summary="many clips as one job that goes on where it was stopped",
    ),
    Command(
        name="augment",
        module="cosmos_transfer.cli.augment",
        summary="a robot dataset in other looks, actions unchanged",
    ),
    Command(
        name="status",
        module="cosmos_transfer.cli.status",
        summary="how far a job is",
    ),
    Command(
        name="retry",
        module="cosmos_transfer.cli.retry",
        summary="let failed and refused items of a job wait again",
    ),
    Command(
        name="export",
        module="cosmos_transfer.cli.export",
        summary="the table of jobs as JSON lines",
    ),
)


def help_text() -> str:
    """What ``cosmos-transfer --help`` prints."""
    rows = "\n".join(f"  {command.name:<10}{command.summary}" for command in COMMANDS)
    return f"""\
usage: cosmos-transfer COMMAND ...

A clip, its controls and a prompt in; the same world with another look out.

commands:
{rows}

options:
  --help      print this text; COMMAND --help prints that of a command
  --version   print the version

Results go to stdout, progress and messages to stderr. Exit code 0: done; 1: a bug, or some requests
of several failed; 2: a mistake in what was asked.
"""


def run_command(main: Callable[[list[str]], int | None], argv: Sequence[str]) -> int:
    """Run one command; a user's mistake becomes one line on stderr and exit code 2."""
    try:
        return main(list(argv)) or 0
    except TransferError as error:
        if _speaks():
            print(one_line(error), file=sys.stderr)
        return USER_MISTAKE
    except KeyboardInterrupt:
        print("cosmos-transfer: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe (head, less) has seen enough; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def one_line(error: BaseException) -> str:
    """The message of an error with its line breaks and runs of spaces folded."""
    return " ".join(str(error).split()) or type(error).__name__


def find_command(name: str) -> Command:
    """The command of that name; raises ConfigError naming the nearest one."""
    for command in COMMANDS:
        if command.name == name:
            return command
    from difflib import get_close_matches

    names = [command.name for command in COMMANDS]
    near = get_close_matches(name, names, n=1)
    raise ConfigError(
        explain(
            "cosmos-transfer",
            expected=f"one of the commands {', '.join(names)}",
            got=repr(name),
            do=f"Did you mean {near[0]}?" if near else "Run cosmos-transfer --help.",
        )
    )


class _ToStderr(logging.Handler):
    """Prints every message once: a file that is read twice has one thing to say."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message, unless it was printed before."""
        message = f"{record.levelname}: {record.getMessage()}"
        if message not in self._said:
            self._said.add(message)
            print(message, file=sys.stderr)


def _speaks() -> bool:
    """Whether this is the first, or the only, process of a job: what it says, all would say."""
    return os.environ.get("RANK", "0") == "0"


def _log_to_stderr() -> None:
    """Warnings of the library go to stderr; COSMOS_TRANSFER_LOG=info shows more."""
    asked = os.environ.get("COSMOS_TRANSFER_LOG", "WARNING").upper()
    level = logging.getLevelNamesMapping().get(asked, logging.WARNING)
    if not _speaks():
        level = logging.CRITICAL
    logging.basicConfig(level=level, handlers=[_ToStderr()], force=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _log_to_stderr()
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0 if arguments else USER_MISTAKE
    if arguments[0] in ("-V", "--version"):
        print(f"cosmos-transfer {cosmos_transfer.__version__}")
        return 0

    def dispatch(rest: list[str]) -> int | None:
        command = find_command(arguments[0])
        result: int | None = import_module(command.module).main(rest)
        return result

    return run_command(dispatch, arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
