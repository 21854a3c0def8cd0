"""Hooks of MkDocs: pages that stand elsewhere in the repository become pages of the site, with their links."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from hwgen.options import rows

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "examples/digits/README.md": "digits.md"}
"""Files of the repository, and the names that they have as pages."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages in docs/, and those of ``PAGES``."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=relinked(text, PurePosixPath(source).parent)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with the table of a plan's options where it asks for them."""
    head = ["| in Python | on the command line | values | default | meaning |", "| --- | --- | --- | --- | --- |"]
    lines = [*head, *(f"| {' | '.join(row)} |" for row in rows())]
    return markdown.replace("<!-- options of a plan -->", "\n".join(lines))


def relinked(text: str, folder: PurePosixPath) -> str:
    """A page with links from its folder of the repository changed to links within docs/.

    A link to what is no page of the site becomes its text.
    """

    def link(found: re.Match[str]) -> str:
        label, target, anchor = found.groups(default="")
        path = folder / target
        if path.parts[:1] == ("docs",):
            return f"[{label}]({path.relative_to('docs')}{anchor})"
        page = PAGES.get(str(path)) or PAGES.get(str(path / "README.md"))
        return f"[{label}]({page}{anchor})" if page else label

    return re.sub(r"\[([^]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)", link, text)
