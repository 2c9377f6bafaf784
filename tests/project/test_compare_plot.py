"""The picture of `goloop compare`, which is drawn from the outputs on its page."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from test_compare_verdicts import measured

from benchmarks import compare_plot
from benchmarks.compare_plot import Load, Point
from benchmarks.svg import COLOURS
from goloop.operations.compare import report

pytestmark = pytest.mark.goloop_only("about a tool of goloop's")

PAGE = compare_plot.PAGE.read_text()


def circles(svg: str) -> list[float]:
    """The x coordinates of the points, in the order of the loops."""
    return [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', svg)]


def lines(svg: str) -> Iterator[tuple[float, float]]:
    """The x coordinates of the intervals' ends."""
    for left, right in re.findall(r'<path d="M([\d.]+),[\d.]+H([\d.]+)M', svg):
        yield float(left), float(right)


def bands(svg: str) -> list[tuple[float, float]]:
    """The x coordinates of the ends of "no difference", without the one of the legend."""
    found = re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)" .*class="band"/>', svg)
    return [(float(left), float(left) + float(width)) for left, width in found][:-1]


def test_the_picture_is_drawn_from_the_outputs_of_the_page() -> None:
    """After a change of them: python -m benchmarks.compare_plot."""
    drawn = compare_plot.svg(compare_plot.loads_of_page(PAGE))
    assert compare_plot.IMAGE.read_text() == drawn


def test_the_page_shows_the_picture_and_its_words_have_its_ratios() -> None:
    found = re.search(r"!\[([^]]+)\]\(img/compare\.svg\)", PAGE)
    assert found is not None
    points = [point for load in compare_plot.loads_of_page(PAGE) for point in load.points]
    assert len(points) == 6
    for point in points:
        assert f"{point.ratio:.2f}" in found[1], point


def test_places_are_proportional_to_ratios() -> None:
    points = [
        Point("goloop", 1.5, 1.4, 1.7),
        Point("uvloop", 1.0, 0.99, 1.01),
        Point("slow", 0.5, None, None),
    ]
    svg = compare_plot.svg([Load("4 connections, full load", points)])
    faster, same, slower = circles(svg)
    assert faster - same == pytest.approx(same - slower, abs=0.3)
    ((left, right), (near, far)) = lines(svg)  # a ratio without an interval is a point only
    assert same < left < faster < right
    assert right - faster == pytest.approx(2 * (faster - left), abs=0.3)
    ((begin, end),) = bands(svg)
    assert begin < near < same < far < end
    assert "1.50 (1.40–1.70)" in svg
    assert '">0.50</text>' in svg


def test_ratios_far_from_one_stay_inside() -> None:
    points = [Point("goloop", 7.9, 7.5, 8.3), Point("slow", 0.05, 0.04, 0.06)]
    svg = compare_plot.svg([Load("4 connections, full load", points)])
    for x in (*circles(svg), *(end for each in lines(svg) for end in each)):
        assert compare_plot.LEFT <= x <= compare_plot.RIGHT
    assert len(re.findall(r'class="mark"', svg)) <= 12


def test_results_without_asyncio_are_refused() -> None:
    with pytest.raises(ValueError, match="no ratios of requests a second to asyncio's"):
        compare_plot.svg(
            compare_plot.loads_of_report(
                "\n".join(report.lines(measured({"a": 1.0, "b": 2.0}), ""))
            )
        )


def test_the_picture_has_a_light_and_a_dark_set_of_colours() -> None:
    text = compare_plot.IMAGE.read_text()
    assert "@media (prefers-color-scheme: dark)" in text
    for name in ("goloop", "uvloop", "asyncio", "paper", "ink"):
        light, dark = COLOURS[name]
        assert f"--{name}: {light};" in text
        assert f"--{name}: {dark};" in text
        assert f"var(--{name}, {light})" in text
