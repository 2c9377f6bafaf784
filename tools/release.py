"""The release: `make release` builds everything that is published, and reports what is left to do.

It publishes nothing.  dist/ has the source distribution, the wheels, a bill of materials for each
machine, SHA256SUMS, and report.md, the report that is printed at the end.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import environments
import wheels
from environments import ROOT, Failed, say

PAGES_WITH_NOTES = ("README.md", "SECURITY.md", "docs/*.md")
NOTE = "\n<!-- before the first release -->"
SECTION = re.compile(r"^## (\d+\.\d+\.\d+) (?:- (\d{4}-\d\d-\d\d)|\(unreleased\))$", re.MULTILINE)
VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
# The Pythons of which a release has a wheel for each machine; free-threaded ones: 3.13t.
TAGS = ("cp311-cp311", "cp312-cp312", "cp313-cp313", "cp313-cp313t", "cp314-cp314", "cp315-cp315")


class Left(Exception):
    """A step that a person has to do; the message says which."""


def version_of(source: str) -> str:
    """Returns the version that the text of version.py defines."""
    found = VERSION.search(source)
    if found is None:
        raise Failed("goloop/_internal/version.py defines no __version__")
    return found[1]


def section_of(changes: str) -> tuple[str, datetime.date | None, int]:
    """Returns the newest section's version, its date (None: unreleased), and its entries."""
    found = SECTION.search(changes)
    if found is None:
        raise Failed("CHANGELOG.md has no section `## 1.2.3 - 2026-01-31` or `(unreleased)`")
    text = changes[found.end() :].partition("\n## ")[0]
    date = datetime.date.fromisoformat(found[2]) if found[2] else None
    return found[1], date, len(re.findall(r"^- ", text, re.MULTILINE))


def version() -> str:
    """The version and the section of the changelog agree, and the section has a date."""
    stated = version_of((ROOT / "goloop/_internal/version.py").read_text())
    section, date, entries = section_of((ROOT / "CHANGELOG.md").read_text())
    if stated != section + ("" if date else ".dev0"):
        raise Failed(f"the version is {stated}, the changelog's newest section {section}")
    if entries == 0:
        raise Failed(f"the section {section} of CHANGELOG.md has no entry")
    if date is None:
        raise Left(f"{stated}, {entries} entries: set the version to {section}, and the date")
    return f"{stated} of {date}, {entries} entries"


def tree() -> str:
    """All files are committed."""
    commit = environments.output(["git", "rev-parse", "--short", "HEAD"]).strip()
    changed = environments.output(["git", "status", "--porcelain"]).splitlines()
    if changed:
        raise Left(f"{commit}, and {len(changed)} files that are not committed")
    tag = "v" + version_of((ROOT / "goloop/_internal/version.py").read_text())
    if tag not in environments.output(["git", "tag", "--points-at", "HEAD"]).split():
        raise Left(f"{commit}: the tag {tag.removesuffix('.dev0')}, when all else is done")
    return f"{commit}, {tag}"


def notes() -> str:
    """The pages have no note that the package is not published."""
    pages = [path for pattern in PAGES_WITH_NOTES for path in ROOT.glob(pattern)]
    noted = sorted(path.name for path in pages if NOTE in path.read_text())
    if noted:
        raise Left(f"remove the notes of {', '.join(noted)}, and set PUBLISHED in address.py")
    return "the address is published"


def distributions() -> str:
    """Builds the source distribution and all wheels; each is examined, installed and used."""
    wheels.wheels()
    names = [path.name for path in (ROOT / "dist").iterdir()]
    wanted = [(tag, machine) for tag in TAGS for machine in wheels.MACHINES]
    missing = [
        f"{tag} {machine}"
        for tag, machine in wanted
        if not any(f"-{tag}-" in name and name.endswith(f"{machine}.whl") for name in names)
    ]
    if missing:
        raise Left(f"no interpreter here for {', '.join(missing)}")
    return f"{sum(name.endswith('.whl') for name in names)} wheels, and the source distribution"


def checksums() -> str:
    """SHA256SUMS has a line for each file, for `sha256sum --check`."""
    out = ROOT / "dist"
    files = sorted(path for path in out.glob("*") if path.suffix in (".whl", ".gz", ".json"))
    if not files:
        raise Failed("dist has no distribution")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    (out / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    return f"{len(files)} files"


STEPS: dict[str, Callable[[], str]] = {
    "version and changelog": version,
    "commit and tag": tree,
    "notes of the pages": notes,
    "distributions": distributions,
    "checksums": checksums,
}


def report(rows: list[tuple[str, str, str]]) -> str:
    """Returns the table of the report; a row is a step, its state and a sentence."""
    lines = ["| step | state | |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def release() -> None:
    """Runs all steps, and prints and stores the report; raises Failed if one has failed."""
    rows: list[tuple[str, str, str]] = []
    for name, step in STEPS.items():
        if name == "checksums" and any(row[:2] == ("distributions", "FAILED") for row in rows):
            continue  # an incomplete set has none
        say(f"release: {name}")
        began = time.monotonic()
        try:
            state, text = "done", step()
        except Left as reason:
            state, text = "left to a person", str(reason)
        except (Failed, OSError, ValueError, subprocess.SubprocessError) as reason:
            state, text = "FAILED", str(reason)
        seconds = time.monotonic() - began
        rows.append((name, state, text if seconds < 10 else f"{text} ({seconds:.0f} s)"))
    table = report(rows)
    Path(ROOT / "dist").mkdir(exist_ok=True)
    (ROOT / "dist" / "report.md").write_text(table)
    print(table, flush=True)
    if any(state == "FAILED" for _, state, _ in rows):
        raise Failed("release")
