"""Sphinx: the documentation as a site, with `make docs`.

The source folder is the repository, so that links between documents lead to the same places on the
site as in the repository.
"""

from __future__ import annotations

from holdfast import __version__

project = "Holdfast"
copyright = "The Holdfast developers"
release = __version__
language = "en"

root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "rust/core/FORMAT.md",
    "tests/spark_suites/README.md",
]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_argparse_cli",
    "sphinxcontrib.mermaid",
]

# GitHub's names of headings, so that links to them hold on both.
myst_heading_anchors = 4
# A diagram is drawn by GitHub, too.
myst_fence_as_directive = ["mermaid"]

# A name in single backticks is a link where there is something of that name.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
# The first page of the site is in docs/, as its source is.
html_extra_path = ["root"]
html_title = f"Holdfast {release}"
