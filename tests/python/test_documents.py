"""Documents lead to what is there: links between them, and the paths that ARCHITECTURE.md names."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.regions.api.options import PipelineOptions

ROOT = Path(__file__).resolve().parents[2]

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")


def documents() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [ROOT / name for name in sorted(set(listed.stdout.split())) if (ROOT / name).is_file()]


def anchors(document: Path) -> set[str]:
    """Return what a link to a heading of the document may end with, as GitHub makes it."""
    text = _FENCED.sub("", document.read_text())
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(text)
    }


def broken_links(document: Path) -> Iterator[str]:
    """Yield the links of a document that lead to no file, or to no heading of it."""
    for link in _LINK.findall(_FENCED.sub("", document.read_text())):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def paths_in_tables(text: str) -> list[str]:
    """Return what is in backticks in the rows of tables."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [path for row in rows for path in _CODE.findall(row)]


def test_links_lead_to_files_and_headings() -> None:
    found = documents()
    assert {ROOT / "README.md", ROOT / "docs" / "semantics.md"} <= set(found)
    broken = {str(document.relative_to(ROOT)): [*broken_links(document)] for document in found}
    assert {name: links for name, links in broken.items() if links} == {}


@pytest.mark.parametrize(
    "link", ["gone.md", "other.md#gone", "#gone", "folder/other.md", "other.md#a-heading-twice"]
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, link: str) -> None:
    (tmp_path / "other.md").write_text("# Other\n\n## A `heading`: once\n")
    good = "[a](other.md) [b](other.md#a-heading-once) [c](#this) [d](https://example.com/x)"
    document = tmp_path / "this.md"
    document.write_text(f"# This\n\n{good}\n")
    assert list(broken_links(document)) == []
    document.write_text(f"# This\n\n{good} [e]({link})\n")
    assert list(broken_links(document)) == [link]


def test_every_path_that_the_architecture_names_is_there() -> None:
    paths = paths_in_tables((ROOT / "ARCHITECTURE.md").read_text())
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_paths_are_read_from_every_cell_of_a_table() -> None:
    text = "`outside`\n\n| a | b |\n|---|---|\n| `one`, `two` | x `three` |\n"
    assert paths_in_tables(text) == ["one", "two", "three"]


def test_the_first_page_of_the_site_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    links = [link.partition("#")[0] for link in _LINK.findall(index.read_text())]
    linked = {(index.parent / link).resolve() for link in links}
    pages = {page for page in documents() if index.parent in page.parents}
    assert len(pages) > 20
    assert pages - linked == {index}


def test_the_readme_can_be_read_in_one_sitting() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_option_of_pipelines_is_described() -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text()
    table = text.partition("## Regional pipelines")[2].partition("\n## ")[0]
    described = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    of_start = ["checkpoint", "restore", "checkpoint_id", "trigger", "gpu"]
    assert sorted(described) == sorted([*of_start, *PipelineOptions.__dataclass_fields__])
