"""`make release`: its report, and the steps that it leaves to a person."""

from __future__ import annotations

import datetime
import hashlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import release  # noqa: E402
from environments import Failed  # noqa: E402

VERSION = "goloop/_internal/version.py"
CHANGES = "# Changelog\n\n## 1.2.0 {}\n\n- One.\n- Two.\n\n## 1.1.0 - 2026-01-31\n\n- Old.\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with nothing but the files that the steps read."""
    (tmp_path / VERSION).parent.mkdir(parents=True)
    (tmp_path / "dist").mkdir()
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


def states(root: Path, version: str, heading: str) -> None:
    (root / VERSION).write_text(f'__version__ = "{version}"\n')
    (root / "CHANGELOG.md").write_text(CHANGES.format(heading))


def test_a_finished_version(root: Path) -> None:
    states(root, "1.2.0", "- 2026-11-29")
    assert release.version() == "1.2.0 of 2026-11-29, 2 entries"


def test_a_version_that_is_not_finished_is_left_to_a_person(root: Path) -> None:
    states(root, "1.2.0.dev0", "(unreleased)")
    with pytest.raises(release.Left, match=r"set the version to 1\.2\.0, and the date"):
        release.version()


@pytest.mark.parametrize(
    ("version", "heading"),
    [("1.2.0", "(unreleased)"), ("1.2.0.dev0", "- 2026-11-29"), ("1.3.0", "- 2026-11-29")],
)
def test_a_version_beside_another_section_fails(root: Path, version: str, heading: str) -> None:
    states(root, version, heading)
    with pytest.raises(Failed, match=r"newest section 1\.2\.0"):
        release.version()


def test_sections() -> None:
    assert release.section_of("## 1.0.0 - 2026-01-31\n") == (
        "1.0.0",
        datetime.date(2026, 1, 31),
        0,
    )
    with pytest.raises(Failed, match="has no section"):
        release.section_of("## next\n")
    with pytest.raises(Failed, match="no __version__"):
        release.version_of("")


def test_a_commit_with_another_tag_is_left_to_a_person(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states(root, "1.2.0", "- 2026-11-29")
    tags = ["v9.9.9\nother\n", "v9.9.9\nv1.2.0\n"]

    def output(command: list[str]) -> str:
        return tags.pop(0) if command[1] == "tag" else "abc\n" * (command[1] == "rev-parse")

    monkeypatch.setattr(release.environments, "output", output)
    with pytest.raises(release.Left, match=r"^abc: the tag v1\.2\.0, when all else is done$"):
        release.tree()
    assert release.tree() == "abc, v1.2.0"


def test_notes_that_nothing_is_published_are_left_to_a_person(root: Path) -> None:
    (root / "README.md").write_text("\n<!-- before the first release -->\n")
    with pytest.raises(release.Left, match=r"README\.md"):
        release.notes()
    (root / "README.md").write_text("as in `<!-- before the first release -->`\n")
    assert release.notes() == "the address is published"


def test_checksums_are_those_of_sha256sum(root: Path) -> None:
    wheel = root / "dist" / "a.whl"
    wheel.write_bytes(b"wheel")
    (root / "dist" / "report.md").write_text("")
    assert release.checksums() == "1 files"
    expected = f"{hashlib.sha256(b'wheel').hexdigest()}  a.whl\n"
    assert (root / "dist" / "SHA256SUMS").read_text() == expected


def test_a_missing_wheel_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tag in release.TAGS[:-1]:
        for machine in ("x86_64", "aarch64"):
            (root / "dist" / f"goloop-1-{tag}-manylinux_2_17_{machine}.whl").touch()
    monkeypatch.setattr(release.wheels, "wheels", lambda: None)
    with pytest.raises(release.Left, match=r"cp315-cp315 x86_64, cp315-cp315 aarch64$"):
        release.distributions()


def test_report_after_a_failure(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> str:
        raise Failed("no compiler")

    def remains() -> str:
        raise release.Left("the tag")

    monkeypatch.setattr(release, "STEPS", {"one": lambda: "right", "two": fails, "three": remains})
    with pytest.raises(Failed, match="release"):
        release.release()
    table = (root / "dist" / "report.md").read_text()
    assert table in capsys.readouterr().out
    assert table.splitlines()[2:] == [
        "| one | done | right |",
        "| two | FAILED | no compiler |",
        "| three | left to a person | the tag |",
    ]


def test_report_of_distributions_that_fail_has_no_checksums(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "dist").rmdir()
    for name in ("version and changelog", "commit and tag", "notes of the pages"):
        monkeypatch.setitem(release.STEPS, name, lambda: "right")

    def fails() -> None:
        raise OSError("no space left")

    monkeypatch.setattr(release.wheels, "wheels", fails)
    with pytest.raises(Failed, match="release"):
        release.release()
    rows = (root / "dist" / "report.md").read_text().splitlines()[2:]
    assert rows[3:] == ["| distributions | FAILED | no space left |"]
    with pytest.raises(Failed, match="no distribution"):
        release.checksums()
