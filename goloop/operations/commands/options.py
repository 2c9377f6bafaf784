"""What the commands' options are made from; each error is a sentence for argparse."""

from __future__ import annotations

import argparse
import contextlib
import difflib

from .client import process_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """One that asks of an option which it does not know whether another was meant."""

    def error(self, message: str) -> NoReturn:
        """Ends with status 2."""
        words = message.removeprefix("unrecognized arguments: ")
        if words != message and words.startswith("-"):
            word = words.split()[0].partition("=")[0]
            close = difflib.get_close_matches(word, self._option_string_actions, n=1)
            message += f"; did you mean {close[0]}?" if close else ""
        super().error(message)


def pid(text: str) -> int:
    """A process's id."""
    try:
        return process_id(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(least: float) -> Callable[[str], float]:
    """A number of seconds, from so many to a day."""

    def converted(text: str) -> float:
        with contextlib.suppress(ValueError):
            if least <= (value := float(text)) <= 86400:
                return value
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds from {least:g} to 86400"
        )

    return converted
