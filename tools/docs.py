"""The documentation's site: built from docs/ by mkdocs, served locally, and checked.

The packages (the group `docs` of pyproject.toml) have their own environment, so that no test can
import them.  goloop need not be built: the API reference is read from the sources.
"""

from __future__ import annotations

import shutil

import environments
from environments import BUILD, ROOT, Environment, Failed, Skipped, run, say

SITE = BUILD / "site"
# The address of the checked site, for its canonical links.
ADDRESS = "https://goloop.example/"
# Names of the browser in which the check opens the pages.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def environment() -> Environment:
    """Returns the environment with mkdocs."""
    base = environments.default_interpreter()
    return environments.environment(base, "docs", name=f".venv-{base.tag}-docs")


def build() -> None:
    """Builds the site in build/site; any broken link or anchor fails."""
    _build(environment())
    say(f"{SITE.relative_to(ROOT)}/index.html")


def serve() -> None:
    """Serves the site on a local port, and builds it again after each change of a page."""
    made = environment()
    run([made.python, "-m", "mkdocs", "serve"], env=_variables(made))


def check() -> bool:
    """The site builds without a warning, and a browser shows every page without a fault."""
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
        raise Skipped("the site builds with good links; its pages were not opened in a browser")
    run([made.python, "tools/docs_check.py", SITE, chromium], env=_variables(made))
    return True


def browser() -> str | None:
    """Returns this machine's Chromium; installs Debian's if there is none and we are root."""
    if not any(map(shutil.which, BROWSERS)):
        environments.install_debian({BROWSERS[0]: BROWSERS[0]}, "the pages are not opened")
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def _build(made: Environment, **more: str) -> None:
    say("building the site (half a minute)")
    # Without --quiet: --strict ignores warnings that are not printed.
    variables = _variables(made, **more)
    run([made.python, "-m", "mkdocs", "build", "--strict"], env=variables, silent=True)


def _variables(made: Environment, **more: str) -> dict[str, str]:
    # The theme prints an advertisement about mkdocs' future at each build.
    return made.variables(NO_MKDOCS_2_WARNING="1", **more)
