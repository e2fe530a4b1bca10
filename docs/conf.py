"""Sphinx: the documentation as a site. `.ci/docs PYTHON` builds it."""

import importlib.metadata
import os
import re
from pathlib import Path

from sphinx.application import Sphinx

project = "rotcell"
author = "rotcell developers"
copyright = "rotcell developers"
release = importlib.metadata.version("rotcell")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
# Links into the documentation of torch and Python need their inventories from the network.
if not os.environ.get("ROTCELL_DOCS_OFFLINE"):
    extensions.append("sphinx.ext.intersphinx")
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "attrs_inline"]
# Docstrings are Markdown: `x` is code.
default_role = "code"
doctest_global_setup = "from rotcell import *"  # as in the modules that the docstrings are from
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_google_docstring = True
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "torch": ("https://docs.pytorch.org/docs/stable", None),
}
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pages.css"]  # widths of tables and code
html_title = f"rotcell {release}"
html_show_sphinx = False

# --- Pages whose text is a file outside docs/

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    "examples": "examples/README.md",
    "results/paper": "results/babi/README.md",
    "results/paper-notes": "results/babi/notes.md",
    "results/study": "results/PROTOCOL.md",
    "results/study-results": "results/README.md",
    "results/study-layers": "results/layers.md",
    "internals/contributing": "CONTRIBUTING.md",
    "internals/verify": "verify/README.md",
    "internals/emulator": "verify/emulator/README.md",
    "internals/ptx": "verify/ptx/README.md",
}
FILES |= {
    f"results/babi-{file.stem}": f"results/babi/{file.name}"
    for file in sorted((ROOT / "results" / "babi").glob("*.md"))
    if (ROOT / "docs" / "results" / f"babi-{file.stem}.md").exists()
}
PAGES = {ROOT / file: page for page, file in FILES.items()}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)")


def read_page(app: Sphinx, page: str, content: list[str]) -> None:
    """Take the text of such a page from its file, and let links between all pages work."""
    there = ROOT / "docs" / f"{page}.md"
    source = ROOT / FILES[page] if page in FILES else there
    text = source.read_text(encoding="utf-8") if page in FILES else content[0]

    def target(link: re.Match[str]) -> str:
        file = (source.parent / link[1]).resolve()
        if file in PAGES:
            return f"/{PAGES[file]}.md"
        return os.path.relpath(file, there.parent)

    content[0] = LINK.sub(target, text)


def mark_equations(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Show what a docstring indents after a colon as it is laid out there."""
    for i in range(len(lines) - 2):
        is_indented = lines[i + 2].startswith("    ") and not lines[i].startswith("    ")
        if lines[i].endswith(":") and not lines[i + 1].strip() and is_indented:
            lines[i] += ":"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", mark_equations, priority=400)
    app.connect("source-read", read_page)
