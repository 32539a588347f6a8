"""Every link of the documentation leads somewhere."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SKIPPED = {"build", ".cache"}


def pages() -> list[Path]:
    """The pages that people read."""
    found = [path for path in DOCS.rglob("*.md") if not SKIPPED & set(path.relative_to(DOCS).parts)]
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(found)]


def tokens(page: Path) -> Iterator[Token]:
    """A page's tokens, those inside a line too; code is none of them."""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        yield token
        yield from token.children or ()


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get: words in small letters, joined by hyphens, a number where one repeats."""
    found: set[str] = set()
    parsed = list(tokens(page))
    for place, token in enumerate(parsed):
        if token.type == "heading_open":
            words = "".join(each.content for each in parsed[place + 1].children or ())
            slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            number, name = 0, slug
            while name in found:
                number += 1
                name = f"{slug}-{number}"
            found.add(name)
    return found


def links(page: Path) -> list[str]:
    """Where a page's links and pictures lead, other hosts left out."""
    targets = [
        str(token.attrGet("href") or token.attrGet("src"))
        for token in tokens(page)
        if token.type in ("link_open", "image")
    ]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for target in links(page):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            found.append(target)
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_somewhere(page: Path):
    """A link to a file or to a heading finds it."""
    assert broken(page) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_each_file_that_a_page_names_is_there(page: Path):
    """A page that says `docs/NAME` in its text, without a link, names a file that is there."""
    named = re.findall(r"\bdocs/[\w/.-]+\.(?:md|yml|yaml|json|toml|svg|csv)\b", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_a_broken_link_is_found(tmp_path: Path):
    """The check sees a file and a heading that are missing, and none in code."""
    (tmp_path / "other.md").write_text("# One two\n\n## `a.b` (c)\n\n## One two\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#one-two) [b](other.md#ab-c) [c](other.md#one-two-1) [d](https://example.org/x)\n"
        "![e](gone.svg) [f](other.md#gone) [g](#here)\n\n    [h](code.md)\n\n`[i](code.md)`\n"
    )
    assert broken(page) == ["gone.svg", "other.md#gone", "#here"]


def test_the_site_leads_to_every_page():
    """Each page of docs stands in the site's contents."""

    def named(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        for each in entry if isinstance(entry, list) else entry.values() if isinstance(entry, dict) else ():
            yield from named(each)

    contents = tomllib.loads((DOCS / "zensical.toml").read_text())["project"]["nav"]
    there = sorted(str(page.relative_to(DOCS)) for page in pages()[2:])
    assert sorted(named(contents)) == there, "each page of docs is named once in `nav` of docs/zensical.toml"
