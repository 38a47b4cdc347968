"""Sphinx: the documentation as a site, with `make docs`.

The source folder is the repository, so that links between documents lead to the same places on the
site as in the repository.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

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
    "tests/README.md",
]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_argparse_cli",
]

# GitHub's names of headings, so that links to them hold on both.
myst_heading_anchors = 4
# A picture is drawn by GitHub, too.
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

# `make docs` fetches the script that draws pictures. Without it they stay text.
_FETCHED = Path(__file__).parents[1] / "build" / "mermaid" / "node_modules"
_DRAWS = "@mermaid-js/tiny/dist/mermaid.tiny.js"
_DRAWN = (_FETCHED / _DRAWS).exists()
html_static_path = [str(_FETCHED), "mermaid/draw.js", "mermaid/draw.css"] if _DRAWN else []


class Picture(SphinxDirective):
    """A picture in Mermaid's language, which the reader's browser draws."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the text of the picture, where the script finds it."""
        text = escape("\n".join(self.content))
        return [nodes.raw("", f'<pre class="mermaid">\n{text}\n</pre>\n', format="html")]


def add_scripts(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Load the scripts on pages with pictures, and on no other."""
    if _DRAWN and '<pre class="mermaid">' in context.get("body", ""):
        app.add_css_file("draw.css")
        app.add_js_file(_DRAWS, loading_method="defer")
        app.add_js_file("draw.js", loading_method="defer")


def setup(app: Sphinx) -> None:
    """Add pictures."""
    app.add_directive("mermaid", Picture)
    app.connect("html-page-context", add_scripts)
