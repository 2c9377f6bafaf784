"""The comparison of simulators measures the named operations."""

from __future__ import annotations

import sys

import pytest

from benchmarks import simulations

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks need Linux")


@on_linux
@pytest.mark.parametrize("simulator", ["goloop", "goloop, shuffle"])
@pytest.mark.parametrize("program", simulations.PROGRAMS)
def test_a_simulator_runs_each_program(simulator: str, program: str) -> None:
    figure = simulations.sample(simulator, program, 0.01)
    assert isinstance(figure, float), figure
    assert figure > 0


def test_ratio_is_to_the_best_simulator_of_the_same_order() -> None:
    found: dict[str, dict[int, float]] = {name: {} for name in simulations.SIMULATORS}
    found["goloop"] = {0: 300.0, 1: 300.0}
    found["goloop, shuffle"] = {0: 100.0, 1: 100.0}
    found["seedloop"] = {0: 100.0, 1: 150.0}
    found["detangle"] = {0: 50.0, 1: 50.0}
    assert simulations._ratios(found) == ["2.5", "2.0"]
