"""The documentation's site: built from docs/ by mkdocs, served while one writes, and checked.

Its packages (the group `docs` of pyproject.toml) live in an environment of their own, so that
nothing of them gets into the tests.  goloop itself is not needed: the API reference is read from
the sources.
"""

from __future__ import annotations

import shutil

import environments
from environments import BUILD, ROOT, Environment, Failed, Skipped, run, say

SITE = BUILD / "site"
# Where the checked site would be served, for its canonical links.
ADDRESS = "https://goloop.example/"
# Names of the browser that the check looks at the pages with.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def environment() -> Environment:
    """The environment with mkdocs."""
    base = environments.default_interpreter()
    return environments.environment(base, "docs", name=f".venv-{base.tag}-docs")


def build() -> None:
    """The site, in build/site; any broken link or anchor fails."""
    _build(environment())
    say(f"{SITE.relative_to(ROOT)}/index.html")


def serve() -> None:
    """The site on a local port, built anew whenever a page changes."""
    made = environment()
    run([made.python, "-m", "mkdocs", "serve"], env=_variables(made))


def check() -> bool:
    """The site builds without a warning, and a browser finds nothing wrong with any page."""
    try:
        made = environment()
    except Failed as reason:
        raise Skipped(f"the group `docs` does not install: {reason}") from reason
    _build(made, SITE_URL=ADDRESS)
    canonical = f'<link rel="canonical" href="{ADDRESS}'
    pages = [page for page in SITE.rglob("*.html") if page.name != "404.html"]
    without = [page.name for page in pages if canonical not in page.read_text()]
    if without:
        say(f"without a canonical link: {', '.join(without)}")
        return False
    chromium = browser()
    if chromium is None:
        raise Skipped("the site builds and its links are good; no browser has looked at it")
    run([made.python, "tools/docs_check.py", SITE, chromium], env=_variables(made))
    return True


def browser() -> str | None:
    """A Chromium of this machine, from Debian's packages where it has none and we are root."""
    if not _installed():
        environments.install_debian({BROWSERS[0]: BROWSERS[0]}, "the pages are not looked at")
    return _installed()


def _installed() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def _build(made: Environment, **more: str) -> None:
    # Not with --quiet: a warning that is not printed does not count, and fails nothing.
    run([made.python, "-m", "mkdocs", "build", "--strict"], env=_variables(made, **more))


def _variables(made: Environment, **more: str) -> dict[str, str]:
    # The theme says what it thinks of mkdocs' future at each build.
    return made.variables(NO_MKDOCS_2_WARNING="1", **more)
