"""Names of the files in the checkout: those at the top are known, and every system can write all of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: What lies at the top: files that git, pip, mkdocs and readers look for there, and the folders.
TOP = {
    *(".ci", ".gitattributes", ".gitignore", "CHANGELOG.md", "LICENSE", "README.md", "__init__.py"),
    *("mkdocs.yml", "pyproject.toml"),
    *("bench", "boards", "build", "changes", "docs", "examples", "hwgen", "rtl_tests"),
}
#: Device names of Windows, which no file there can have, whatever its ending.
_DEVICES = {"aux", "con", "nul", "prn", *(f"{name}{number}" for name in ("com", "lpt") for number in range(1, 10))}
_PORTABLE = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*(?<!\.)")


def files() -> list[str]:
    """Return the paths of the files that the checkout holds, or skip the test where git doesn't know them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True
    )
    if listed.returncode:  # a copy without git
        ignored = {".venv", "__pycache__", ".pytest_cache", ".ruff_cache", ".hypothesis"}
        paths = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()]
        return [
            path.as_posix()
            for path in paths
            if not ignored & {*path.parts}
            and not any(part.endswith(".egg-info") for part in path.parts)
            and (path.parts[0] != "build" or path.name == "README.md")
        ]
    return [name for name in listed.stdout.decode().split("\0") if name]


def not_portable(names: list[str]) -> list[str]:
    """Return the paths that Windows or macOS cannot hold beside the others."""
    wrong = {
        name
        for name in names
        for part in name.split("/")
        if not _PORTABLE.fullmatch(part) or part.split(".")[0].lower() in _DEVICES
    }
    by_folded: dict[str, str] = {}
    wrong |= {name for name in names if by_folded.setdefault(name.lower(), name) != name}
    return sorted(wrong)


def test_the_top_holds_what_it_is_known_to_hold():
    assert {name.split("/")[0] for name in files()} <= TOP


def test_every_system_can_write_all_files():
    assert not_portable(files()) == []


@pytest.mark.parametrize("name", ['a"b.py', "a\\b", "a|b", "a b", "b/aux.v", "b/con", "end.", "-rf", "ä.py", "A/x.py"])
def test_a_name_that_some_system_cannot_write_is_noticed(name):
    assert not_portable(["a/x.py", name]) == [name]
