"""Every rule of docs/semantics.md is proven by tests that exist, and code cites no other rule."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import holdfast
import holdfast.regions
from holdfast.cli import checkpoints, cost, details, main, settings
from holdfast.cli.output import documents, report
from holdfast.queries import batches

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "docs" / "semantics.md"

_HEADING = re.compile(r"^### R(\d+)\. (.+)$", re.MULTILINE)
_SECTION = re.compile(r"^## ", re.MULTILINE)
_PROOFS = re.compile(r"^Proven by:\n\n((?:- .*\n?)+)", re.MULTILINE)
_PROOF = re.compile(r"- `([^`:]+)::(\w+)`")
# The number of a rule in a comment or a docstring: R12. Code has no such names of its own.
_CITED = re.compile(r"(?<![\w.])R(\d{1,3})\b")


@dataclass(frozen=True)
class Rule:
    """A rule: its number, its words, and the file and the name of each test that proves it."""

    number: int
    text: str
    proofs: tuple[tuple[str, str], ...]


def rules(document: str) -> list[Rule]:
    """Return the rules of a document; one that is not written like the others is an error."""
    found = []
    headings = list(_HEADING.finditer(document))
    assert len(headings) == document.count("\n### "), "a heading without a number"
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        part = document[heading.end() : following.start() if following else len(document)]
        part = _SECTION.split(part)[0]
        number = int(heading[1])
        proofs = _PROOFS.findall(part)
        assert len(proofs) == 1, f"R{number} has {len(proofs)} lists of proofs"
        lines = proofs[0].splitlines()
        matches = [_PROOF.fullmatch(line) for line in lines]
        assert all(matches), f"R{number}: a proof is `file::name`: {lines}"
        text = part[: part.index("Proven by:")].strip()
        assert text, f"R{number} says nothing"
        found.append(Rule(number, text, tuple((m[1], m[2]) for m in matches if m)))
    return found


def names_of_tests(file: Path) -> frozenset[str]:
    """Return the names of the tests in a file of Python or Rust."""
    text = file.read_text()
    if file.suffix == ".py":
        parsed = ast.parse(text)
        names = (part.name for part in parsed.body if isinstance(part, ast.FunctionDef))
        return frozenset(name for name in names if name.startswith("test_"))
    assert file.suffix == ".rs", file
    attribute = r"#\[test\](?:\s*(?:#\[[^\]]*\]|//[^\n]*))*\s*fn\s+(\w+)"
    return frozenset(re.findall(attribute, text))


def problems(document: str, root: Path, sources: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with a document of rules.

    Parameters
    ----------
    document
        The text of the document.
    root
        Folder in which the files of the tests are.
    sources
        Texts that cite rules, by the names of their files.
    """
    found = rules(document)
    numbers = [rule.number for rule in found]
    for number in sorted({number for number in numbers if numbers.count(number) > 1}):
        yield f"R{number} is there twice"
    for rule in found:
        for file, name in rule.proofs:
            if not (root / file).is_file():
                yield f"R{rule.number}: there is no file {file}"
            elif name not in names_of_tests(root / file):
                yield f"R{rule.number}: {file} has no test {name}"
    for file, text in sources.items():
        for cited in sorted({int(number) for number in _CITED.findall(text)} - set(numbers)):
            yield f"{file} cites R{cited}, which is no rule"


def tracked(*patterns: str) -> dict[str, str]:
    """Return the texts of the repository's files with such names."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = sorted(set(listed.stdout.split()))
    return {name: (ROOT / name).read_text() for name in names if (ROOT / name).is_file()}


def test_every_rule_is_proven_and_every_number_that_is_cited_is_a_rule() -> None:
    sources = tracked("*.py", "*.pyi", "*.rs", "*.java", "*.c", "docs/semantics.md")
    del sources["tests/python/test_rules.py"]  # it cites what is no rule, below
    assert len(sources) > 300
    document = RULES.read_text()
    assert list(problems(document, ROOT, sources)) == []
    assert len(rules(document)) > 60


def test_other_documents_cite_no_rules() -> None:
    others = tracked("*.md")
    del others["docs/semantics.md"]
    assert "README.md" in others
    cited = {name: _CITED.findall(text) for name, text in others.items()}
    assert {name: numbers for name, numbers in cited.items() if numbers} == {}


def help_texts(public: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield what ``help()`` says of names, and of the public members of those that are classes."""
    for name, value in public.items():
        members = {name: value}
        if inspect.isclass(value):
            own = [member for member in dir(value) if not member.startswith("_")]
            members |= {f"{name}.{member}": getattr(value, member) for member in own}
        for path, member in members.items():
            # A value without a docstring of its own has that of its class, such as that of str.
            described = (inspect.isclass, inspect.isroutine, inspect.isdatadescriptor)
            if any(kind(member) for kind in described):
                yield path, inspect.getdoc(member) or ""


def citing(texts: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names whose help cites a rule, or the document of the rules."""
    return sorted({name for name, text in texts if _CITED.search(text) or "semantics" in text})


def test_public_help_cites_no_rules() -> None:
    public = {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in (holdfast, holdfast.regions)
        for name in module.__all__
    }
    texts = list(help_texts(public))
    assert {"holdfast.restore", "holdfast.regions.MapState.keys"} <= {name for name, _ in texts}
    assert len(texts) > 150
    assert citing(texts) == []


def test_help_of_the_command_line_cites_no_rules() -> None:
    parser = main.parser()
    (commands,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    texts = [("holdfast", parser.format_help())]
    texts += [(name, command.format_help()) for name, command in commands.choices.items()]
    assert len(texts) == 23
    for module in (batches, checkpoints, cost, details, documents, main, report, settings):
        own = [one for one in vars(module).items() if inspect.getmodule(one[1]) is module]
        texts += help_texts(dict(own))
        texts.append((module.__name__, module.__doc__ or ""))
    assert citing(texts) == []


def test_a_rule_in_public_help_is_found() -> None:
    class Base:
        """Nothing."""

        def inherited(self) -> None:
            """Do it (R3)."""

    class Public(Base):
        """A class (R1, R2)."""

        @property
        def size(self) -> int:
            """As docs/semantics.md says."""
            return 0

        def _own(self) -> None:
            """Not public (R4)."""

    def function() -> None:
        """Do it, and not XR9 or v.R9."""

    texts = list(help_texts({"Public": Public, "function": function, "count": 3}))
    assert citing(texts) == ["Public", "Public.inherited", "Public.size"]
    assert {name for name, _ in texts} == {
        "Public",
        "Public.inherited",
        "Public.size",
        "function",
    }


GOOD = """# Rules

## A. First

### R1. One thing

The driver does one thing.

Proven by:

- `test_one.py::test_it_does`
- `two.rs::it_does`

## B. Second

### R2. Another thing

The driver does another thing.

Proven by:

- `two.rs::it_does_another`
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "test_one.py").write_text(
        "def test_it_does() -> None: ...\ndef helper() -> None: ...\n"
    )
    (tmp_path / "two.rs").write_text(
        "#[test]\nfn it_does() {}\n#[test]\n#[ignore]\n// Why.\nfn it_does_another() {}\n"
        "fn no_test() {}\n"
    )
    return tmp_path


def test_a_document_with_proofs_is_accepted(root: Path) -> None:
    assert [rule.number for rule in rules(GOOD)] == [1, 2]
    assert list(problems(GOOD, root, {"a.py": "# R1, R2: why, and XR9 or v.R9 or R2D2"})) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("test_one.py::", "gone.py::", "R1: there is no file gone.py"),
        ("::test_it_does", "::test_it_did", "R1: test_one.py has no test test_it_did"),
        ("::test_it_does", "::helper", "R1: test_one.py has no test helper"),
        ("::it_does_another", "::no_test", "R2: two.rs has no test no_test"),
        ("::it_does`", "::it_doe`", "R1: two.rs has no test it_doe"),
        ("### R2.", "### R1.", "R1 is there twice"),
        ("### R2.", "### R3.", "a.py cites R2, which is no rule"),
    ],
)
def test_what_is_wrong_with_a_document_is_found(
    root: Path, old: str, new: str, problem: str
) -> None:
    assert GOOD.count(old) >= 1
    broken = GOOD.replace(old, new)
    assert problem in list(problems(broken, root, {"a.py": "# R1, R2."}))


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("- `two.rs::it_does_another`\n", "", "R2 has 0 lists of proofs"),
        ("Proven by:\n\n- `two.rs::it_does_another`", "Nothing.", "R2 has 0 lists of proofs"),
        ("`two.rs::it_does`", "two.rs::it_does", "R1: a proof is"),
        ("The driver does another thing.\n", "", "R2 says nothing"),
        ("### R2. Another", "### Another", "a heading without a number"),
    ],
)
def test_a_rule_that_is_not_written_like_the_others_is_refused(
    old: str, new: str, error: str
) -> None:
    assert old in GOOD
    with pytest.raises(AssertionError, match=error):
        rules(GOOD.replace(old, new))
