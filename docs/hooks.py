"""Hooks of MkDocs: pages that lie elsewhere in the repository join the site, and generated tables fill their pages."""

from __future__ import annotations

import argparse
import posixpath
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from hwgen.cli import main as cli
from hwgen.network.onnx import adaptive_pools, float_operands, fold, forms, qonnx, redundant_nodes
from hwgen.network.onnx.frames.search import RULES
from hwgen.network.onnx.operator_traits import TRAITS, Effect, Traits
from hwgen.network.onnx.operators import OPERATORS
from hwgen.network.options import ModelOptions
from hwgen.options import PlanOptions, rows

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "examples/digits/README.md": "digits.md",
    "examples/detector/README.md": "detector.md",
}
"""Files of the repository, and the names that they have as pages."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the pages in docs/ together with those of ``PAGES``."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with its generated tables, and with links that work on the site."""
    sources = {name: source for source, name in PAGES.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return relinked(with_tables(markdown), PurePosixPath(source), PurePosixPath(page.file.src_uri))


def with_tables(markdown: str) -> str:
    """Return a page with the tables of options in place of their comments."""
    head = ("in Python", "on the command line", "values", "default", "meaning")
    for name, options in (("a plan", PlanOptions), ("a model", ModelOptions)):
        markdown = markdown.replace(f"<!-- options of {name} -->", table(head, rows(options)))
    if "<!-- operators -->" in markdown:
        head = ("operator", "hardware", "host", "keeps frames apart", "it can")
        markdown = markdown.replace("<!-- operators -->", table(head, operators()))
    if "<!-- rewriting -->" in markdown:
        markdown = markdown.replace("<!-- rewriting -->", table(("step", "rule", "what it does"), rewriting()))
    return markdown.replace("<!-- options of the verbs -->", verbs())


def operators() -> Iterable[tuple[str, ...]]:
    """Yield a row for each ONNX operator that hwgen knows: its name, who computes it, and what it does with values."""
    for name in sorted({*TRAITS, *OPERATORS, *RULES}):
        traits = TRAITS.get(name, Traits(Effect.OTHER))
        abilities = (name in OPERATORS and traits.effect is not Effect.SOFTMAX, traits.on_host, name in RULES)
        yield name, *("yes" if able else "" for able in abilities), traits.effect.value


def rewriting() -> Iterable[tuple[str, ...]]:
    """Yield a row for each rule that rewrites graphs, in the order in which they are applied."""
    steps = {
        "other forms": forms.RULES,
        "constants": fold.RULES,
        "QONNX": qonnx.RULES,
        "redundant nodes": redundant_nodes.RULES,
        "adaptive pools": adaptive_pools.RULES,
        "floats": (*float_operands.WEIGHTS, *float_operands.OPERANDS),
    }
    for step, rules in steps.items():
        for rule in rules:
            yield step, rule.name, rule.does


def verbs() -> str:
    """Return a section for each verb of the command line, with the table of its options."""
    (commands,) = (action for action in cli.parser()._actions if isinstance(action, argparse._SubParsersAction))
    return "\n\n".join(
        f"### {verb}\n\n{table(('option', 'values', 'meaning'), map(option, parser._actions[1:]))}"
        for verb, parser in commands.choices.items()
        if parser._actions[1:]
    )


def option(action: argparse.Action) -> tuple[str, ...]:
    """Return the names, the values and the meaning of an option or argument."""
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar or action.dest}`"
    values = ", ".join(map(str, action.choices)) if action.choices else action.metavar if action.option_strings else ""
    return names, str(values or ""), str(action.help or "")


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *map(escaped, lines)))


def escaped(cells: Sequence[str]) -> list[str]:
    """Return cells whose bars do not end them."""
    return [re.sub(r"(?<!\\)\|", r"\\|", cell) for cell in cells]


def relinked(text: str, source: PurePosixPath, page: PurePosixPath) -> str:
    """Return a page with links between files of the repository changed to links between pages of the site.

    A link to a file that is no page of the site becomes its text.

    Parameters
    ----------
    text
        The page, in Markdown.
    source
        Path of the page's file in the repository.
    page
        Path of the page in the site.
    """

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match.groups(default="")
        path = posixpath.normpath(source.parent / target)
        if path.startswith("docs/"):
            name = path.removeprefix("docs/")
        elif path in PAGES or f"{path}/README.md" in PAGES:
            name = PAGES.get(path) or PAGES[f"{path}/README.md"]
        else:
            return label
        return f"[{label}]({posixpath.relpath(name, page.parent)}{anchor})"

    return re.sub(r"\[([^]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)", link, text)
