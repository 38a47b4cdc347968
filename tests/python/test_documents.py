"""Documents lead to what is there: links between them, paths, and numbers of the code."""

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


#: Documents whose tables name files of the repository, and how many at least.
NAME_PATHS = {"ARCHITECTURE.md": 30, "CONTRIBUTING.md": 80} | {
    str(page.relative_to(ROOT)): 5 for page in sorted((ROOT / "docs" / "internals").iterdir())
}


@pytest.mark.parametrize("name", NAME_PATHS)
def test_every_path_that_a_table_names_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    if name == "CONTRIBUTING.md":
        text = text.partition("## Where to start")[2]
    paths = [path for path in paths_in_tables(text) if not constant(path)]
    assert len(paths) >= NAME_PATHS[name]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def constant(name: str) -> bool:
    """Whether a table means a constant or a field of the code, and no path."""
    return re.fullmatch(r"[A-Z][A-Z_]+|[a-z]+(_[a-z]+)+", name) is not None


def value_in_code(name: str, path: str) -> float:
    """Return what a constant is in a file: of a length of time, in seconds."""
    text = (ROOT / path).read_text()
    (found,) = re.findall(rf"\b{name}(?:: [\w\[\]]+)? = ([^;\n]+)", text)
    expression = found.strip().replace("_", "").replace("L", "")
    if (seconds := re.fullmatch(r"Duration::fromsecs\((\d+)\)", expression)) is not None:
        return float(seconds[1])
    product = re.fullmatch(r"([\d.]+)(?:\s*<<\s*(\d+))?", expression)
    assert product is not None, f"{name} in {path} is {found}"
    number = float(product[1]) * 2 ** int(product[2] or 0)
    return number / 1000 if name.endswith("_MS") else number


def value_in_table(text: str) -> float:
    """Return the number that a cell says: of a length of time, in seconds."""
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "ms": 1e-3, "s": 1, "": 1}
    number, _, unit = text.replace(",", "").partition(" ")
    return float(number) * units[unit]


def numbers_of_the_code() -> Iterator[tuple[str, str, str, str]]:
    """Yield what the internals say of constants: page, value, name and file."""
    for page in sorted((ROOT / "docs" / "internals").iterdir()):
        row = r"^\| [^|]+ \| ([^|]+) \| `([A-Za-z_]+)` in `([^`]+)` \|$"
        for value, name, path in re.findall(row, page.read_text(), re.MULTILINE):
            yield page.name, value, name, path


def test_numbers_of_the_internals_are_those_of_the_code() -> None:
    found = list(numbers_of_the_code())
    assert len(found) > 40
    stale = [row for row in found if value_in_table(row[1]) != value_in_code(row[2], row[3])]
    assert stale == []


def test_paths_are_read_from_every_cell_of_a_table() -> None:
    text = "`outside`\n\n| a | b |\n|---|---|\n| `one`, `two` | x `three` |\n"
    assert paths_in_tables(text) == ["one", "two", "three"]


def entries_of_the_sidebar(index: str) -> Iterator[str]:
    """Yield the pages that the first page of the site puts into the sidebar, without endings."""
    for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", index, re.MULTILINE | re.DOTALL):
        for line in tree.splitlines():
            if line and not line.startswith(":"):
                yield line.partition("<")[2].rstrip(">") or line


def test_the_first_page_of_the_site_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    text = index.read_text()
    links = [link.partition("#")[0] for link in _LINK.findall(_FENCED.sub("", text))]
    listed = {index.parent / f"{page}.md" for page in entries_of_the_sidebar(text)}
    linked = {(index.parent / link).resolve() for link in links if link.endswith(".md")}
    pages = {page for page in documents() if index.parent in page.parents}
    assert len(pages) > 20
    assert pages - {page.resolve() for page in listed} == {index}
    assert linked - {page.resolve() for page in listed} == set()


def test_the_readme_can_be_read_in_one_sitting() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_first_screen_of_the_readme_has_its_two_commands() -> None:
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:25])
    block = re.search(r"^(.*its own set-up.*)\n\n```sh\n(.*?)```", screen, re.MULTILINE | re.DOTALL)
    assert block is not None
    commands = [line.partition("#")[0].strip() for line in block[2].splitlines()]
    assert commands == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{command.removeprefix('make ')}:" in makefile for command in commands)


def test_every_part_of_the_plugin_is_in_the_architecture() -> None:
    plugin = ROOT / "spark_plugin/src/main/java/io/holdfast/spark"
    parts = {path.name for path in plugin.iterdir() if path.is_dir()} - {"minor"}
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = {Path(path).name for path in paths_in_tables(text) if path.startswith("spark_plugin")}
    assert parts <= named
    drawn = re.findall(r'\["([^"]+)"\]', text.partition("accTitle: The layers")[2])
    assert parts <= {part for box in drawn for part in box.split(", ")}
    assert "being built" not in text


def test_every_option_of_pipelines_is_described() -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text()
    table = text.partition("## Regional pipelines")[2].partition("\n## ")[0]
    described = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    of_start = ["checkpoint", "restore", "checkpoint_id", "trigger", "gpu"]
    assert sorted(described) == sorted([*of_start, *PipelineOptions.__dataclass_fields__])
