"""The command-line options that start another Python with the settings of this one.

subprocess._args_from_interpreter_flags() does that for multiprocessing. But it omits -i, -u, -R
and most of -X, and importing it would slow down each program that goloop runs.
"""

from __future__ import annotations

import _imp
import os
import sys

# Letters of options that can be repeated, by their names in sys.flags.
_COUNTED = {
    "bytes_warning": "b",
    "debug": "d",
    "dont_write_bytecode": "B",
    "inspect": "i",
    "no_site": "S",
    "optimize": "O",
    "quiet": "q",
    "verbose": "v",
}


def interpreter_options() -> list[str]:
    """Return the options of this interpreter, as words of a command line.

    Options that only repeat an environment variable are omitted, because children inherit it.
    """
    flags = sys.flags
    options = [f"-{letter * getattr(flags, name)}" for name, letter in _COUNTED.items()]
    options = [each for each in options if each != "-"]
    if flags.isolated:
        options.append("-I")
    else:
        isolating = (
            (flags.ignore_environment, "-E"),
            (flags.no_user_site, "-s"),
            (flags.safe_path, "-P"),
        )
        options += [option for given, option in isolating if given]
    if flags.hash_randomization and os.environ.get("PYTHONHASHSEED") == "0":
        options.append("-R")
    if getattr(sys.stdout, "write_through", False):
        options.append("-u")
    pycs = _imp.check_hash_based_pycs
    if pycs != "default":
        options += ["--check-hash-based-pycs", pycs]
    options += [f"-X{key}" if value is True else f"-X{key}={value}" for key, value in _x_options()]
    return [*options, *(f"-W{each}" for each in _warning_options())]


def _x_options() -> list[tuple[str, object]]:
    """Return the names and values of the -X options."""
    return list(sys._xoptions.items())


def _warning_options() -> list[str]:
    """Return the values of the -W options alone.

    They are sys.warnoptions without the entries that -X dev, PYTHONWARNINGS and -b have added.
    """
    found = list(sys.warnoptions)
    flags = sys.flags
    if flags.dev_mode and found[:1] == ["default"]:
        del found[0]
    variable = "" if flags.ignore_environment else os.environ.get("PYTHONWARNINGS", "")
    inherited = [each for each in variable.split(",") if each]
    if found[: len(inherited)] == inherited:
        del found[: len(inherited)]
    action = "error" if flags.bytes_warning > 1 else "default"
    if flags.bytes_warning and found[-1:] == [f"{action}::BytesWarning"]:
        del found[-1]
    return found
