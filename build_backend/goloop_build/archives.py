"""Rewrites wheels and source distributions so that equal contents have equal bytes.

setuptools writes the times and modes of the files on disk, in the order of the directory.
This module rewrites its archives: sorted, with a single time, and with the modes of a fresh
checkout.  The time is SOURCE_DATE_EPOCH, or else the date of the newest release in
CHANGELOG.md, which a source distribution contains too.
"""

from __future__ import annotations

import base64
import calendar
import gzip
import hashlib
import io
import os
import re
import tarfile
import time
import zipfile

# The first instant that a zip file can hold.
OLDEST = calendar.timegm((1980, 1, 1, 0, 0, 0))


def source_date() -> int:
    """Returns the time for all files, in seconds since 1970; never before 1980."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return max(int(given), OLDEST)
    with open("CHANGELOG.md", encoding="utf-8") as file:
        found = re.search(r"^## .* - (\d{4})-(\d{2})-(\d{2})$", file.read(), re.MULTILINE)
    if found is None:
        return OLDEST
    return calendar.timegm((int(found[1]), int(found[2]), int(found[3]), 0, 0, 0))


def rewrite_wheel(path: str, added: dict[str, bytes]) -> None:
    """Rewrites a wheel with further files; their names are relative to its .dist-info."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if name[-1] != "/"}
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    folder = record.rpartition("/")[0]
    files.update({f"{folder}/{name}": content for name, content in added.items()})
    del files[record]
    # The metadata comes last, as the wheel format recommends.
    names = sorted(files, key=lambda name: (name.startswith(f"{folder}/"), name))
    lines = [f"{name},{_digest(files[name])},{len(files[name])}\n" for name in names]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()

    when = time.gmtime(source_date())[:6]
    with zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in [*names, record]:
            info = zipfile.ZipInfo(name, when)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3  # the modes are of Unix
            info.external_attr = (0o100000 | _mode(files[name])) << 16
            archive.writestr(info, files[name])
    os.replace(path + ".new", path)


def _digest(content: bytes) -> str:
    digest = hashlib.sha256(content).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _mode(content: bytes) -> int:
    return 0o755 if content.startswith((b"\x7fELF", b"#!")) else 0o644


def rewrite_sdist(path: str, added: dict[str, str]) -> None:
    """Rewrites a source distribution with further files: names in it, and paths on disk."""
    when = source_date()
    with tarfile.open(path) as archive:
        # Each build writes goloop.egg-info again.
        files = {
            info.name: _content(archive, info)
            for info in archive
            if info.isfile() and ".egg-info/" not in info.name
        }
    top = next(iter(files)).partition("/")[0]
    for name, source in added.items():
        with open(source, "rb") as file:
            files[f"{top}/{name}"] = file.read()

    with (
        open(path + ".new", "wb") as out,
        # No name and a fixed time: gzip would write both into its header.
        gzip.GzipFile("", "wb", 9, out, mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.size = len(files[name])
            info.mtime = when
            info.mode = _mode(files[name])
            archive.addfile(info, io.BytesIO(files[name]))
    os.replace(path + ".new", path)


def _content(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(info)
    assert file is not None
    return file.read()
