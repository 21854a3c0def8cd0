"""Pages of docs/: blocks marked ``sh`` and ``python`` run as they are printed; the site builds without a warning.

What only runs on a board, or in a vendor's tool, is marked otherwise: ``py``, ``text``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from printed_commands import ROOT, commands

from hwgen.cli import main as cli

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def runnable(page: Path) -> list[tuple[str, str]]:
    """Blocks to run, in order: their language and their text."""
    return re.findall(r"^```(sh|python)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


RUNNABLE = [page for page in PAGES if runnable(page)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What a page's reader has: the folder of the sources, as far as pages read it, and build/."""
    for name in ("examples", "boards"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(DOCS).with_suffix("")))
def test_commands_are_good_ones(page, folder):
    """Every command parses, and the files that it reads are there or were written by one before."""
    for language, block in runnable(page):
        for command in commands(block) if language == "sh" else ():
            words = shlex.split(command)
            if words[0] == "hwgen":
                arguments = cli.parser().parse_args(words[1:])
                for option in ("model", "calibration", "input", "labels"):
                    value = getattr(arguments, option, None)
                    for name in value if isinstance(value, list) else [value]:
                        assert not name or not Path(name).suffix or "@" in name or Path(name).exists(), command


@pytest.mark.long
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(DOCS).with_suffix("")))
def test_pages_run_as_printed(page, folder):
    """In order, by the installed command; what a block prints is not compared."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for language, block in runnable(page):
        words = ["bash", "-e", "-c", block] if language == "sh" else [sys.executable, "-c", block]
        done = subprocess.run(
            words, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (page.name, block, done.stderr)


@pytest.mark.long
def test_the_site_builds(tmp_path):
    """Every page is in the navigation, every link and anchor leads somewhere; `.ci/run` builds it as well."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    pages = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert pages >= {page.relative_to(DOCS).with_suffix("") for page in PAGES} | set(
        map(Path, ("index", "changelog", "digits", "detector"))
    )
    for name, text in (("python", "simulate"), ("command-line", "--wave-frames")):
        assert text in (site / "reference" / f"{name}.html").read_text(encoding="utf-8")


def test_links_lead_somewhere_in_the_repository():
    """Every relative link of the pages names a file or folder, and its anchor a heading of that file."""
    for page in (*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", text):
            file = (page.parent / target).resolve() if target else page
            assert file.exists(), f"{page}: {target}"
            if anchor:
                assert anchor in anchors(file), f"{page}: {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as MkDocs and code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_files_that_pages_name_exist():
    """Paths in back quotes, from the folder of the sources or from hwgen/."""
    found = 0
    for page in PAGES:
        for path in re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text(encoding="utf-8")):
            roots = (ROOT, ROOT / "hwgen", ROOT / "hwgen" / "network", ROOT / "rtl_tests")
            assert any((root / path).is_file() for root in roots), f"{page}: {path}"
            found += 1
    assert found > 50
