"""Python's options: those of a command line, and those with which this interpreter was started.

subprocess._args_from_interpreter_flags() makes options from sys.flags for multiprocessing. It omits
-i, -u, -R and most of -X; and sys.flags does not tell -O from PYTHONOPTIMIZE, which -E and -I turn
off.
"""

from __future__ import annotations

import sys

_FLAGS = frozenset("bBdEiIOPqRsStuvx")
_WITH_VALUE = frozenset("WX")
_LONG_WITH_VALUE = "--check-hash-based-pycs"
# Options with which Python prints something and exits.
_PRINTING = frozenset("hV?")
_LONG_PRINTING = frozenset(
    ("--help", "--help-all", "--help-env", "--help-xoptions", "--version"),
)


class BadOption(Exception):
    """An invalid command line; the message is one line."""


def split_options(words: list[str]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the options of Python at the beginning of a command line, and the program's words.

    An option is a tuple of its letter and its value, if it has one. The other words begin with
    `-c`, `-m`, `-`, `--` or a path; without a program, they are only `--`. Raises BadOption for an
    option that Python does not accept together with a program.
    """
    options: list[tuple[str, ...]] = []
    at = 0

    def following(option: str) -> str:
        """Return the next word, the value of the option; BadOption if there is none."""
        nonlocal at
        if at == len(words):
            raise BadOption(f"argument expected for the {option} option")
        at += 1
        return words[at - 1]

    while at < len(words):
        word = words[at]
        if word in ("-", "--") or not word.startswith("-"):
            return options, words[at:]
        at += 1
        if word == _LONG_WITH_VALUE:
            options.append((word, following(word)))
            continue
        if word.startswith("--"):
            raise _wrong_option(word, word in _LONG_PRINTING)
        for place, letter in enumerate(word[1:], start=1):
            option = "-" + letter
            if letter in "cm":
                return options, ["-" + word[place:], *words[at:]]
            if letter in _WITH_VALUE:
                options.append((option, word[place + 1 :] or following(option)))
                break
            if letter not in _FLAGS:
                raise _wrong_option(option, letter in _PRINTING)
            options.append((option,))
    return options, ["--"]


def _wrong_option(option: str, prints: bool) -> BadOption:
    """Return the error for an option that Python lacks, or that prints and runs no program."""
    if prints:
        return BadOption(f"{option} runs no program; for Python's own output: python {option}")
    return BadOption(f"unknown option {option}")


def interpreter_options() -> list[tuple[str, ...]]:
    """Return the options on the command line of this interpreter, as split_options() does."""
    return split_options(sys.orig_argv[1:])[0]
