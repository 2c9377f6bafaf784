"""A Dask scheduler, two workers and a client, each a process on goloop."""

from __future__ import annotations

import pytest

from real_programs.programs import APPS, LOOP, Programs, free_port, needs

needs("distributed")

pytestmark = pytest.mark.real


def test_dask_computes_on_two_workers(programs: Programs) -> None:
    port = free_port()
    scheduler = programs.python(APPS / "dask_node.py", "scheduler", str(port))
    scheduler.until_says("node is up")
    address = f"tcp://127.0.0.1:{port}"
    workers = [programs.python(APPS / "dask_node.py", "worker", address) for _ in range(2)]
    for worker in workers:
        worker.until_says("node is up")
    assert "done" in programs.ends_well(APPS / "dask_client.py", address)
    for node in (*workers, scheduler):
        node.end()


def test_a_client_of_dask_that_is_synchronous_has_its_loop_in_a_thread(programs: Programs) -> None:
    said = programs.ends_well("-W", "ignore::DeprecationWarning", APPS / "dask_in_threads.py")
    # Dask may leave a connection that it was making as it ended, of which Python warns.
    loops = [line for line in said.splitlines() if line.startswith(("goloop.", "asyncio."))]
    assert loops == [" ".join([LOOP] * 3)], said
