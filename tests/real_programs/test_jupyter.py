"""Jupyter: a kernel of ipykernel 7 on goloop, and clients of it on goloop."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from real_programs.programs import APPS, LOOP, Programs, needs

needs("ipykernel", "jupyter_client", "nbclient", "nbformat")

pytestmark = pytest.mark.real


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """The environment of a client that knows the kernel `goloop`, as docs/frameworks has it."""
    folder = tmp_path / "share" / "kernels" / "goloop"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(
        json.dumps(
            {
                "argv": [
                    *(sys.executable, "-m", "goloop"),
                    *("-m", "ipykernel_launcher", "-f", "{connection_file}"),
                ],
                "display_name": "Python on goloop",
                "language": "python",
                "env": {"GOLOOP_WATCHDOG": "0"},
            }
        )
    )
    return {
        "JUPYTER_PATH": str(tmp_path / "share"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }


def test_a_notebook_runs_in_a_kernel_on_goloop(programs: Programs, places: dict[str, str]) -> None:
    said = programs.ends_well(APPS / "jupyter_notebook.py", "goloop", **places)
    assert f"client: {LOOP}\n" in said
    assert f"\n{LOOP}\n" in said
    # Servers, clients, children and tasks, from cells that await.
    assert "A LINE\n" in said
    assert "a child\n" in said
    assert "'the task is done'" in said
    # The threads for control messages and for the shell's channel.
    assert f"Control {LOOP}\n" in said
    assert f"Shell channel {LOOP}\n" in said
    assert "a long cell says: []\n" in said
    assert "from bash\n" in said
    assert "refused: " in said
    assert f"still {LOOP} works\n" in said
    assert "cell fails: ZeroDivisionError\n" in said


@pytest.mark.parametrize("client", ["asynchronous", "blocking"])
def test_a_kernel_is_interrupted_asked_and_restarted(
    programs: Programs, places: dict[str, str], client: str
) -> None:
    words = ["-m", "goloop", APPS / "jupyter_kernel.py", "goloop"]
    if client == "blocking":
        words.append("--blocking")
        # The client's heartbeat thread waits in its loop, without awaiting.
        places["GOLOOP_WATCHDOG"] = "0"
    said = programs.ends_well(*words, **places)
    assert f"client: {LOOP}\n" in said
    assert f"loop: ('ok', ['{LOOP}'], [])\n" in said
    # A cell that computes, and one that awaits.
    assert "interrupted: ('KeyboardInterrupt', ['go'], [])\n" in said
    assert "interrupted: ('CancelledError', ['go'], [])\n" in said
    assert "asked: ('ok', ['an', 'answer'], ['what? '])\n" in said
    assert "many: ok True\n" in said
    assert f"restarted: ('ok', ['{LOOP}'], [])\n" in said
    assert "alive: False\n" in said
    assert "Traceback" not in said
