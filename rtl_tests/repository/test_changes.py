"""The changelog's newest release, and towncrier's release of the entries in changes/ with their template."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_newest_release_is_the_version_of_the_project():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"^## (.*) - \d{4}-\d\d-\d\d$", text, re.MULTILINE)[0] == f"[{project['version']}]"


def test_a_release_moves_the_entries_to_the_changelog(tmp_path):
    """Also a check of every file in changes/: towncrier refuses one without a type in its name."""
    pytest.importorskip("towncrier")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    changes = tmp_path / "changes"
    shutil.copytree(ROOT / "changes", changes)
    (changes / "zy.removed.md").write_text("One line.\nAnother.\n")
    (changes / "zz.removed.md").write_text("A second entry.\n")
    words = ["build", "--yes", "--version", "1000.0.0", "--date", "2030-01-02"]
    done = subprocess.run([sys.executable, "-m", "towncrier", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after = ((folder / "CHANGELOG.md").read_text(encoding="utf-8") for folder in (ROOT, tmp_path))
    head, mark, former = before.partition("<!-- towncrier release notes start -->\n")
    assert after.startswith(f"{head}{mark}\n## [1000.0.0] - 2030-01-02\n\n### ")
    assert after.endswith(f"\n### Removed\n\n- One line.\n  Another.\n- A second entry.\n{former}")
    assert {path.name for path in changes.iterdir()} == {"README.md", "template.jinja"}
