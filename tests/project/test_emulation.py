"""tools/emulation.py and its kin, as far as they run without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import checks
import emulation
import environments


def test_maven_repository_comes_from_the_users_settings(tmp_path: Path) -> None:
    settings = tmp_path / "settings.xml"
    assert emulation.maven_mirror(settings) == emulation.MAVEN_CENTRAL
    settings.write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>'
        "<mirror><mirrorOf>*,!central</mirrorOf><url>https://a.test/</url></mirror>"
        "<mirror><mirrorOf>*</mirrorOf><url>https://b.test</url></mirror></mirrors></settings>"
    )
    assert emulation.maven_mirror(settings) == "https://b.test"


def test_debian_mirror_is_taken_from_the_apt_sources() -> None:
    listing = "http://a.test/debian-security/\nhttp://b.test/ubuntu/\nhttp://c.test/debian/\n"
    assert emulation.debian_mirror(listing) == "http://c.test/debian"
    assert emulation.debian_mirror("http://b.test/ubuntu/\n") == emulation.DEBIAN_MIRROR


def test_jar_with_other_content_is_refused_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name = "cpython-1.2.3-linux-arm64"
    repository = tmp_path / ".m2" / "repository"
    jar = repository / "org" / "bytedeco" / "cpython" / "1.2.3" / f"{name}.jar"
    jar.parent.mkdir(parents=True)
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("org/bytedeco/cpython/linux-arm64/bin/python1.2", "")
    with pytest.raises(environments.Failed, match="SHA-256"):
        emulation._from_maven("1.2.3", "0" * 64)
    assert [path.name for path in emulation.cache().iterdir()] == ["lock"]


@pytest.mark.parametrize("reason", ["no qemu today", None])
def test_impossible_checks_are_skipped_and_failures_fail(
    reason: str | None, monkeypatch, capsys
) -> None:
    def check() -> bool:
        """A check."""
        if reason is not None:
            raise environments.Skipped(reason)
        return False

    monkeypatch.setattr(checks, "CHECKS", {"it": check})
    monkeypatch.setenv("CHECKS", "it")
    assert checks.check() is (reason is not None)
    last = capsys.readouterr().out.splitlines()[-1]
    outcome = "FAILED" if reason is None else f"skipped: {reason}"
    assert last == f"==> it: {outcome} (0 s)"
