"""The documentation: its programs run, its links lead somewhere, its commands exist.

Each ```python block of README.md and of every page in docs/ is a whole program.  Other
texts stand in blocks of other kinds: ```text, or ```console with a prompt.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import os
import re
import shlex
import shutil
import sys
import sysconfig
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import ended
import pytest
from pages import DOCS, PAGES, ROOT, blocks

from goloop import __main__
from goloop_build import address

# Files of the repository by their addresses on the web: README is shown on PyPI, too.
ADDRESS = re.compile(rf"{re.escape(address.REPOSITORY)}/(?:blob|tree)/main/")


def numbered(*kinds: str) -> list[object]:
    """Each block of these kinds on all pages, as a parameter whose id names the page."""
    return [
        pytest.param(
            block,
            id=f"{page.relative_to(ROOT).with_suffix('')}-{number}",
            marks=[pytest.mark.forks] if re.search(r"\bos\.fork\b", block) else [],
        )
        for page in PAGES
        for number, block in enumerate(blocks(page, *kinds))
    ]


# ---- programs ---------------------------------------------------------------------------


# Marks of pytest's, and the plugins that they need.
PLUGINS = {"pytest.mark.asyncio": "pytest_asyncio", "pytest.mark.anyio": "anyio"}


# Servers that programs start.
SERVERS = ("redis-server",)


def missing(program: str) -> str | None:
    """The first module that the program needs, or starts by -m, and that is not installed; or such
    a server."""
    for mark, plugin in PLUGINS.items():
        if mark in program and importlib.util.find_spec(plugin) is None:
            return plugin
    for node in ast.walk(ast.parse(program)):
        names = []
        if isinstance(node, ast.List | ast.Tuple | ast.Call):
            names = re.findall(r"'-m', '(\w+)", ast.unparse(node))
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            # A part of goloop may want a package that its users have.
            wanted = name if name.startswith("goloop.") else name.partition(".")[0]
            try:
                if importlib.util.find_spec(wanted) is None:
                    return wanted
            except ModuleNotFoundError as error:
                return error.name
        if (
            isinstance(node, ast.Constant)
            and node.value in SERVERS
            and not shutil.which(node.value)
        ):
            return str(node.value)
    return None


@pytest.mark.parametrize("program", numbered("python"))
def test_the_documented_program_runs(program: str, tmp_path: Path) -> None:
    if name := missing(program):
        assert name.partition(".")[0] not in ("goloop", *sys.stdlib_module_names), name
        pytest.skip(f"{name} is not installed")
    (tmp_path / "program.py").write_text(program)
    # From 3.12 on, of every fork beside threads; docs/troubleshooting.md says so.
    options = ["-W", "error::ResourceWarning", "-W", "ignore:This process:DeprecationWarning"]
    done = ended.python(*options, "program.py", cwd=tmp_path, limit=60)
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout
    assert "Warning" not in done.stdout, done.stdout


def test_a_missing_server_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert missing('import os\nstart(["redis-server", "--port", "0"])') == "redis-server"
    assert missing('import os\nstart(["sh"])') is None


def test_a_missing_package_is_noticed() -> None:
    assert missing("import os, goloop\nfrom asyncio import run") is None
    assert missing("import asyncio\nimport no_such.thing") == "no_such"
    assert missing("def f():\n    from no_such.thing import x") == "no_such"
    assert missing('run([sys.executable, "-m", "goloop", "-m", "no_such", "app"])') == "no_such"


# ---- links ------------------------------------------------------------------------------


def without_code(text: str) -> str:
    """A page's text without its blocks of code and without `code`."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`]*`", "code", text)


def links(page: Path) -> list[str]:
    """The targets of a page's links and pictures."""
    return re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text()))


def anchors(page: Path) -> set[str]:
    """The names of headings by GitHub's rule, those that a heading gives itself, and those of
    documented objects (`::: goloop.run`), which the site's generator makes.
    """
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = set(re.findall(r"^::: (\S+)", text, re.MULTILINE))
    found.update(re.findall(r"^#+ .*\{ *#(\S+) *\} *$", text, re.MULTILINE))
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        kept = (
            each for each in shown if each in " -_" or unicodedata.category(each)[0] in ("L", "N")
        )
        name = "".join(kept).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def broken(page: Path) -> Iterator[str]:
    """The links of a page that lead nowhere; other sites are not asked."""
    for target in links(page):
        path, _, anchor = target.partition("#")
        if ADDRESS.match(path):
            to = ROOT / ADDRESS.sub("", path)
        elif re.match(r"[a-z]+:", path):
            continue
        else:
            to = (page.parent / path).resolve() if path else page
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def missing_parts(page: Path) -> Iterator[tuple[str, str]]:
    """The titles that a page quotes of a linked file, `"Title" of [words](file)`, and that the
    file does not have."""
    quoted = re.findall(r'"([^"\n]+)"\s+(?:of|in|on)\s+\[[^]]*\]\(([^)\s#:]+)\)', page.read_text())
    for title, target in quoted:
        to = page.parent / target
        if to.is_file() and title not in to.read_text():
            yield title, target


def test_quoted_titles_stand_in_the_linked_page() -> None:
    assert [(page.name, *part) for page in PAGES for part in missing_parts(page)] == []


def test_a_quoted_title_that_does_not_exist_is_found(tmp_path: Path) -> None:
    (tmp_path / "tables.md").write_text("## Start\n")
    page = tmp_path / "page.md"
    page.write_text('"Start" of [all](tables.md), the tables "of one" of\n[all](tables.md)\n')
    assert list(missing_parts(page)) == [("of one", "tables.md")]


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_the_other_pages_lead_somewhere(name: str) -> None:
    assert list(broken(ROOT / name)) == []


def test_readmes_links_work_on_other_sites() -> None:
    """The package index shows README with addresses for its relative links, pictures by files."""
    text = (ROOT / "README.md").read_text()
    shown = address.absolute(text)
    found = re.findall(r"\]\(([^)\s]+)\)", without_code(shown))
    found += re.findall(r'(?:href|src)="([^"]+)"', shown)
    assert len(found) == len(links(ROOT / "README.md")) > 10
    assert [each for each in found if not each.startswith(("https://", "#"))] == []
    in_tree = "https://raw.githubusercontent.com/goloop/goloop/main/docs/img/front.svg"
    assert address.absolute("![a b](docs/img/front.svg)") == f"![a b]({in_tree})"
    same = "[a](#b) [c](https://d.invalid) `[e](f.md)`\n```\n[g](h.md)\n```"
    assert address.absolute(same) == same


def test_readmes_pictures_are_files_of_the_tree() -> None:
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert [each for each in pictures if not (ROOT / each).is_file()] == []


def test_pages_name_one_address_of_the_project() -> None:
    named = [ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *PAGES, *DOCS.glob("*.yml")]
    for page in named:
        for found in re.findall(r"https?://[^\s)`\"]*/goloop/[^\s)`\",]*", page.read_text()):
            assert f"{found}/".startswith(f"{address.REPOSITORY}/"), (page, found)


def test_pictures_have_alternative_texts() -> None:
    for page in PAGES:
        for words in re.findall(r"!\[([^]]*)\]\(", page.read_text()):
            assert len(words.split()) > 2, (page, words)


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`-c, d\n## Twice\n## Twice\n[a](#a-b-c-d) [b](#twice-1) [c](page.md#twice)\n"
        "```\n# no heading\n[no](link)\n```\n`[no](link)`\n"
        "[d](#twice-2) [e](other.md) [f](page.md#no-heading) ![g](no.svg) [h](https://x.invalid/)\n"
        "[i](https://github.com/goloop/goloop/blob/main/README.md#install)\n"
        "## An object { #own.name }\n::: goloop.run\n[k](#own.name) [l](#goloop.run)\n"
        "[j](https://github.com/goloop/goloop/blob/main/NO.md)\n"
    )
    assert list(broken(page)) == [
        *("#twice-2", "other.md", "page.md#no-heading", "no.svg"),
        "https://github.com/goloop/goloop/blob/main/NO.md",
    ]


# ---- commands ---------------------------------------------------------------------------


def commands(block: str) -> Iterator[list[str]]:
    """The words of each command of a block, without prompts, comments and variables before it."""
    for line in block.splitlines():
        if "\n$ " in f"\n{block}" and not line.startswith("$ "):
            continue  # the output of a command
        words = shlex.split(line.removeprefix("$ "), comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if words:
            yield words


def run(*arguments: str) -> str:
    done = ended.python(*arguments, cwd=ROOT, limit=60, apart=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_targets() -> set[str]:
    found = re.search(r"^TARGETS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    return set(found[1].split())


@pytest.mark.parametrize("block", numbered("sh", "console", "bash"))
def test_documented_commands_exist(block: str) -> None:
    for words in commands(block):
        program, arguments = os.path.basename(words[0]), words[1:]
        if program == "make":
            assert {each for each in arguments if re.fullmatch(r"[a-z-]+", each)} <= make_targets()
        elif program == "goloop" and arguments and arguments[0] in __main__.COMMANDS:
            told = run("-m", "goloop", arguments[0], "--help")
            for option in (each for each in arguments if re.match("--?[a-z]", each)):
                if arguments[0] in ("compare", "doctor") and option == "-m":
                    break  # later arguments are the program's
                if "|" not in arguments[: arguments.index(option)]:
                    assert option in told, (option, told)
        elif program.startswith("python") and arguments[:2] == ["-m", "benchmarks"]:
            assert run("-m", "benchmarks", arguments[2], "--help")
        elif program.startswith("python") and arguments[:1] and arguments[0].endswith(".py"):
            named = arguments[0]
            assert "/" not in named or (ROOT / named).exists(), named


def test_commands_are_read_out_of_a_block() -> None:
    block = "$ A=1 goloop top 4711 --json # each\nprinted\n$ make build\n"
    assert list(commands(block)) == [["goloop", "top", "4711", "--json"], ["make", "build"]]
    assert list(commands("make build\n\n# nothing\n")) == [["make", "build"]]


def test_the_command_goloop_is_installed() -> None:
    assert (Path(sysconfig.get_path("scripts")) / "goloop").exists()


def test_start_page_shows_the_real_output(tmp_path: Path) -> None:
    page = DOCS / "start.md"
    hello, plain = blocks(page, "python")[:2]
    (tmp_path / "hello.py").write_text(hello)
    (tmp_path / "plain.py").write_text(plain)
    shown = [
        (command.split(), output)
        for block in blocks(page, "console")
        for command, output in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)
        if command.endswith((" hello.py", " plain.py"))
    ]
    assert [words[-1] for words, _ in shown] == ["hello.py", "plain.py", "plain.py"]
    for words, output in shown:
        done = ended.python(*words[1:], cwd=tmp_path, limit=60, apart=True)
        assert (done.returncode, done.stdout) == (0, output), done.stderr


def test_first_release_reports_missing_notes() -> None:
    pages = [*PAGES, ROOT / "SECURITY.md"]
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in pages}
    step = texts["docs/releasing.md"].partition("<!-- before the first release -->")[2]
    named = set(re.findall(r"`([\w/]+\.md)`", step.split("\n3. ")[0]))
    noted = {name for name, text in texts.items() if "\n<!-- before the first release -->" in text}
    # With the first release all of them go.
    assert noted == (set() if address.PUBLISHED else named)
    if noted:
        installing = {
            str(page.relative_to(ROOT))
            for page in PAGES
            for block in blocks(page, "sh", "console")
            if ["pip", "install", "goloop"] in commands(block)
        }
        # The others have no such command.
        assert installing == noted - {"docs/deployment.md", "docs/security.md", "SECURITY.md"}


# ---- the table of methods ---------------------------------------------------------------

STATES = {"native", "goloop", "inherited", "asyncio", "differs"}


def methods_and_states() -> list[tuple[str, str]]:
    """Each method of the table in compatibility.md with the state that it gives."""
    text = (DOCS / "compatibility.md").read_text()
    section = text.split("## Every method of AbstractEventLoop")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return [(name, row[1]) for row in rows for name in re.findall(r"`(\w+)`", row[0])]


def test_the_table_names_every_method_once() -> None:
    named = [name for name, _ in methods_and_states()]
    assert sorted(set(named)) == sorted(named)
    public = {name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("_")}
    assert public <= set(named)
    assert {state for _, state in methods_and_states()} <= STATES


# Differences without a test: of private parts of asyncio, or with no fixed outcome.
UNTESTED = (
    "**`os._exit()`, `os.execv()` or a fatal signal", "**`data_received()` and `resume_writing()`",
    "**SystemExit or KeyboardInterrupt from", "**128 failed accepts", "**A broken record",
    "**`protocol_factory` of a TLS", "**Exceptions from the private", "**Methods put into",
    "**Other overridden methods", "**Assigning `__code__` of a method**",
)  # fmt: skip


def test_deliberate_differences_name_their_tests() -> None:
    text = (DOCS / "compatibility.md").read_text()
    section = text.split("## Deliberate differences\n")[1].split("\n## ")[0]
    topics = section.split("\n### ")[1:]
    assert len(topics) > 10
    assert [topic.split("\n")[0] for topic in topics if "](../tests/" not in topic] == []
    entries = re.findall(r"^- (.*(?:\n  .*)*)", section, re.MULTILINE)
    without = [entry for entry in entries if "](../tests/" not in entry]
    assert [entry for entry in without if not entry.startswith(UNTESTED)] == []
    assert len(without) == len(UNTESTED)
