"""The argument parser of the commands that need no Hydra: one look, one way to be wrong."""

from __future__ import annotations

import argparse
from typing import NoReturn

from cosmos_transfer.errors import ConfigError, explain

HELP_WIDTH = 98


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that a mistake here reads like a mistake anywhere."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(
            explain(
                self.prog,
                expected="the arguments that its help lists",
                got=f"[{message}]",
                do=f"Run {self.prog} --help.",
            )
        )


def make_parser(command: str, description: str) -> argparse.ArgumentParser:
    """A parser whose help does not depend on the width of the terminal."""

    def formatter(prog: str) -> argparse.HelpFormatter:
        return argparse.HelpFormatter(prog, width=HELP_WIDTH)

    return _Parser(
        prog=f"cosmos-transfer {command}",
        description=description,
        formatter_class=formatter,
        allow_abbrev=False,
    )
