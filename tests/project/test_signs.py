"""The steps of `make`: signs of life of a program that prints nothing."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

import environments
import signs

pytestmark = pytest.mark.goloop_only("about the tools")

# A program that waits until its file exists.
WAITING = """
import pathlib, sys, time
print('its output', flush=True)
while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.001)
sys.exit(int(sys.argv[2]))
"""


class Told(list[str]):
    """The printed signs; the second one lets the program end."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self, text: str, **_options: object) -> None:
        self.append(text)
        if sum(each.startswith("    ... ") for each in self) == 2:
            self.file.touch()


def words(file: Path, status: int = 0) -> list[str | Path]:
    return [sys.executable, "-c", WAITING, file, str(status)]


@pytest.mark.parametrize("option", ["quiet", "silent"])
def test_a_step_without_output_shows_that_it_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    told = Told(tmp_path / "end")
    monkeypatch.setattr(signs, "SECONDS", 0.05)
    monkeypatch.setattr(signs, "print", told, raising=False)
    environments.run(words(told.file), **{option: True})
    assert told[:2] == ["    ... 0 s", "    ... 0 s"]


def test_other_steps_have_no_signs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The output of a program, such as pytest's dots, is not broken by signs; nor by threads."""
    monkeypatch.setattr(signs, "SECONDS", 0.001)
    timer = threading.Timer(0.1, (tmp_path / "end").touch)
    timer.start()
    environments.run(words(tmp_path / "end"))
    thread = threading.Thread(target=environments.run, args=(words(tmp_path / "end"),))
    thread.start()
    thread.join()
    timer.join()
    said = capfd.readouterr().out
    assert said.count("\nits output\n") == 2
    assert "    ... " not in said


def test_the_output_of_a_quiet_step_is_shown_if_it_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "end").touch()
    environments.run(words(tmp_path / "end"), quiet=True)
    assert "its output" not in capfd.readouterr().out
    with pytest.raises(environments.Failed, match="exited with status 3"):
        environments.run(words(tmp_path / "end", status=3), quiet=True)
    assert "its output" in capfd.readouterr().out
