"""The documentation as a site: it builds without a warning and asks no other host for anything."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

DOCS = Path(__file__).parents[2] / "docs"


class Page(HTMLParser):
    """What a page of the site loads, where it leads, and the anchors it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take up one element."""
        has = {name: value or "" for name, value in attrs}
        self.anchors |= {has[name] for name in ("id", "name") if name in has}
        if "src" in has:
            self.loads.append(has["src"])
        if "href" in has:
            (self.leads if tag == "a" else self.loads).append(has["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """The pages of the site, built as `make site` builds it, by path."""
    pytest.importorskip("zensical", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site") / "docs"
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("build", ".cache"))
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(folder / "zensical.toml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return {path: Page(path) for path in (folder / "build").rglob("*.html") if path.name != "404.html"}


def test_the_site_has_every_page(site: dict[Path, Page]):
    """Each page of docs is one of the site."""
    wanted = {page.stem for page in DOCS.glob("*.md")} | {page.stem for page in (DOCS / "reference").glob("*.md")}
    assert {path.stem for path in site} == wanted


def test_the_site_links_to_itself(site: dict[Path, Page]):
    """Each link of a page, and what it loads, is there, with its anchor."""
    broken = []
    for path, page in site.items():
        for target in (*page.leads, *page.loads):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            found = (path.parent / unquote(parts.path)).resolve() if parts.path not in ("", ".") else path
            if not found.is_file():
                found = found / "index.html"
            anchor = unquote(parts.fragment)
            if not found.is_file() or (anchor and found in site and anchor not in site[found].anchors):
                broken.append(f"{path.name}: {target}")
    assert broken == []


def test_the_site_asks_no_other_host(site: dict[Path, Page]):
    """No page loads a font, a style, a script or a picture from elsewhere, and no style does."""
    assert [each for page in site.values() for each in page.loads if urlsplit(each).netloc] == []
    folder = next(iter(site)).parent
    while folder.name != "build":
        folder = folder.parent
    for style in folder.rglob("*.css"):
        assert not re.search(r"@import|url\([\"']?(https?:)?//", style.read_text(encoding="utf-8")), style
