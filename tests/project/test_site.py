"""The documentation's site, as far as it can be checked without building it.

`make check CHECKS=docs` builds it, with each page in the navigation, and has a browser look at
each page.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import docs_links
import goloop

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

REFERENCE = (DOCS / "reference.md").read_text()


# ---- the reference --------------------------------------------------------------


def public_names() -> Iterator[str]:
    """Return the names in each public module's `__all__`, even if its imports are not installed."""
    folders = [ROOT / "goloop", ROOT / "goloop/guest"]
    paths = [path for folder in folders for path in folder.glob("*.py")]
    for path in sorted([*paths, ROOT / "goloop/testing/__init__.py"]):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            target = node.target if isinstance(node, ast.AnnAssign) else target
            if isinstance(target, ast.Name) and target.id == "__all__":
                yield from (f"{module}.{name}" for name in ast.literal_eval(node.value))


@pytest.mark.parametrize("name", list(public_names()))
def test_the_reference_has_every_public_name(name: str) -> None:
    module = name.rpartition(".")[0]
    entries = re.findall(r"^::: (\S+)|\{ #([\w.]+)", REFERENCE, re.M)
    assert {name, module} & {entry for entry, _ in entries} or name in {own for _, own in entries}


def test_public_names_match_the_modules() -> None:
    named = set(public_names())
    assert {f"goloop.{name}" for name in goloop.__all__} <= named
    for module in ("guest", "guest.qt", "watchdog", "systemd", "testing", "otel", "prometheus"):
        names = pytest.importorskip(f"goloop.{module}").__all__
        assert {f"goloop.{module}.{name}" for name in names} <= named


@pytest.mark.parametrize("native", [goloop.Future, goloop.Loop, goloop.Task])
def test_types_of_c_have_a_docstring(native: type) -> None:
    """ruff looks for those of Python, rules D100 to D103."""
    assert native.__doc__


def test_reference_lists_methods_that_only_goloop_has() -> None:
    ours = {name for name in dir(goloop.Loop) if not name.startswith("_")}
    ours -= set(dir(asyncio.SelectorEventLoop))
    entry = REFERENCE.split("::: goloop.Loop\n")[1].split("\n\n")[0]
    listed = re.search(r"^ +members: \[(.*)\]", entry, re.M)
    assert listed is not None
    assert set(listed[1].split(", ")) == ours


# ---- pages ----------------------------------------------------------------------


def test_links_out_of_the_pages_lead_to_the_repository() -> None:
    page = DOCS / "frameworks" / "page.md"
    base = "https://github.com/goloop/goloop"
    for before, after in {
        "[a](../../goloop/watchdog.py)": f"[a]({base}/blob/main/goloop/watchdog.py)",
        "[a](../../examples)": f"[a]({base}/tree/main/examples)",
        "[`a`](../../README.md#install)": f"[`a`]({base}/blob/main/README.md#install)",
        "[a](../tls.md)": "[a](../tls.md)",
        "`[a](../../README.md)`": "`[a](../../README.md)`",
        "```\n[a](../../README.md)\n```": "```\n[a](../../README.md)\n```",
    }.items():
        assert docs_links.rewritten(before, page) == after


def test_each_page_has_the_version_and_the_status_of_the_metadata() -> None:
    foot = docs_links.on_config({})["copyright"]
    assert foot.startswith(f"goloop {goloop.__version__}, alpha.")
    assert '"Development Status :: 3 - Alpha"' in (ROOT / "pyproject.toml").read_text()
    for page in (ROOT / "README.md", DOCS / "index.md"):
        assert "goloop is alpha software" in " ".join(page.read_text().split())


@pytest.mark.parametrize("published", [False, True])
def test_site_links_to_the_repository_only_when_it_answers(
    published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docs_links, "PUBLISHED", published)
    config = docs_links.on_config({"repo_url": "address", "edit_uri": "edit/"})
    assert bool(config["repo_url"]) is bool(config["edit_uri"]) is published
    assert ("Not published yet" in config["copyright"]) is not published


def test_lines_that_a_program_prints_are_marked() -> None:
    def block(*lines: str, mark: str = "") -> str:
        spans = [
            f'<span id="__span-0-{number}"{mark if each[0] == "!" else ""}>'
            f'<span class="gp">{each.lstrip("!")}</span>\n</span>'
            for number, each in enumerate(lines)
        ]
        return f'<div class="language-console highlight"><code>{"".join(spans)}</code></div>'

    lines = "$ goloop top \\", "  4711", "!LOOP   %CPU", "!printed", "$ make"
    assert docs_links.without_output(block(*lines)) == block(*lines, mark=' class="output"')
    other = block(*lines).replace("console", "text")
    assert docs_links.without_output(other) == other


def test_a_link_to_a_file_that_is_not_there_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        docs_links.rewritten("[a](../no/such/file.py)", DOCS / "page.md")
    assert "../no/such/file.py" in caplog.text


# ---- pictures -------------------------------------------------------------------


def luminance(colour: str) -> float:
    """How bright a colour is, by WCAG."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21, by WCAG."""
    darker, brighter = sorted((luminance(one), luminance(other)))
    return (brighter + 0.05) / (darker + 0.05)


# The drawings of the pages, which are edited by hand. Screenshots bring one dark background.
DRAWINGS = ["connection", "fork", "monitor", "turn"]


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_have_a_light_and_a_dark_set_of_colours(name: str) -> None:
    text = (DOCS / "img" / f"{name}.svg").read_text()
    light, dark = re.findall(r":root\{(.*?)\}", text)
    assert "@media (prefers-color-scheme:dark)" in text
    for scheme in (light, dark):
        colours = dict(re.findall(r"--([\w-]+):(#\w+);", scheme))
        for filling in colours.keys() - {"ink", "soft"}:
            assert contrast(colours["ink"], colours[filling]) >= 4.5, filling
        assert contrast(colours["soft"], colours["paper"]) >= 4.5


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_plot_colours_have_enough_contrast(scheme: int) -> None:
    from benchmarks import svg

    theirs = {name: both[scheme] for name, both in svg.COLOURS.items()}
    for name in set(theirs) - {"paper"}:
        least = 4.5 if name == "ink" else 3
        assert contrast(theirs[name], theirs["paper"]) >= least, name


@pytest.mark.parametrize("path", sorted(DOCS.glob("img/performance-*.svg")), ids=lambda p: p.stem)
def test_plots_have_a_light_and_a_dark_set_of_colours(path: Path) -> None:
    from benchmarks import svg

    text = path.read_text()
    assert "@media (prefers-color-scheme: dark)" in text
    for name in ("goloop", "asyncio", "paper", "ink"):
        light, dark = svg.COLOURS[name]
        assert f"--{name}: {light};" in text
        assert f"--{name}: {dark};" in text
        assert f"var(--{name}, {light})" in text
