"""The argument parser and the argument types of the commands."""

from __future__ import annotations

import argparse
import contextlib
import difflib

from .client import process_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


PID_HELP = "process id of a running program that was started with GOLOOP_INTROSPECT=1"


class Parser(argparse.ArgumentParser):
    """An argument parser that suggests a similar option for an unknown one."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit with status 2."""
        words = message.removeprefix("unrecognized arguments: ")
        if words != message and words.startswith("-"):
            word = words.split()[0].partition("=")[0]
            close = difflib.get_close_matches(word, self._option_string_actions, n=1)
            message += f"; did you mean {close[0]}?" if close else ""
        super().error(message)


def pid(text: str) -> int:
    """Return the process id in a text, for argparse; ArgumentTypeError if it is not one."""
    try:
        return process_id(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(least: float) -> Callable[[str], float]:
    """Return a converter for argparse: text to a number of seconds, from `least` to one day."""

    def converted(text: str) -> float:
        """Return the number in the text; ArgumentTypeError if it is not one or out of range."""
        with contextlib.suppress(ValueError):
            if least <= (value := float(text)) <= 86400:
                return value
        raise argparse.ArgumentTypeError(
            f"must be a number of seconds from {least:g} to 86400, got {text!r}"
        )

    return converted
