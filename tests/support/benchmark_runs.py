"""Made-up windows, samples and runs of the benchmarks."""

from __future__ import annotations

from benchmarks import results


def window(**changed: float) -> dict[str, float]:
    """Return a window of a second on two cores in which both ends were idle half of the time."""
    quiet = {
        "seconds": 1.0, "client_cpu": 0.5, "server_cpu": 0.5,
        "cores": 2, "idle": 1.0, "steal": 0.0, "interrupts": 0.0,
    }  # fmt: skip
    return {**quiet, **changed}


def sample(rate: float, server_cpu: float = 1.0) -> results.Sample:
    """Return a sample of a quiet second in which the server used some CPU time."""
    return {
        "messages": rate,
        "p50_us": 10.0,
        "p99_us": 20.0,
        **window(server_cpu=server_cpu, idle=1.5 - server_cpu),
    }


def a_run(date: str = "2026-01-01 00:00:00", python: str = "3.14.3") -> results.Run:
    """A run with a win, a loss, a failure and a loop that is not there."""
    run = results.Run(
        python=python,
        build="CPython",
        command="python -m benchmarks run",
        date=date,
        machine={
            **{name: f"a {name}" for name in ("processor", "kernel", "libc", "openssl")},
            "cores": "2",
            "memory": "1 GiB",
            "packages": "aiohttp 3, uvicorn 0",
            "interrupts": "within",
        },
        client="C epoll",
        cores="server on core 0, client on core 1",
        rounds=2,
        seconds=1.0,
        warmup=0.1,
        commit="abc",
        loops={
            "goloop": {"version": "goloop 1"},
            "asyncio": {"version": "CPython 3.14.3"},
            "uvloop": {"version": "uvloop 1"},
            "zuvloop": {"error": "zuvloop is not installed"},
            "rloop": {"version": "rloop 1"},
            "c-epoll": {"version": "C"},
        },
    )
    for number in range(2):
        for loop, rate in (("goloop", 120), ("asyncio", 70), ("uvloop", 100), ("c-epoll", 125)):
            run.add("protocol-1k-x10", loop, number, sample(rate * 1000))
        for loop, ns in (("goloop", 200), ("asyncio", 1000), ("uvloop", 100)):
            run.add("sleep-0", loop, number, {"ns": ns, "us": ns / 1000, "best_ns": ns - 1})
    run.fail("protocol-1k-x10", "rloop", "the server was ended by SIGSEGV: ")
    return run
