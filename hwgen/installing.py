"""How to install what is missing: one command, for the environment in which this Python runs."""

from __future__ import annotations

import os
import re
import shlex
import sys
from importlib import metadata

__all__ = ["command"]


def command(package: str) -> str:
    """The shell command that installs a package in the versions that hwgen works with.

    Parameters
    ----------
    package : str
        Name of a package that hwgen needs, or that one of its extras brings.
    """
    python = sys.executable or "python3"
    below = os.path.relpath(python)
    if not below.startswith(os.pardir):
        python = below
    return f"{shlex.quote(python)} -m pip install {shlex.quote(_requirement(package))}"


def _requirement(package: str) -> str:
    """Name, extras and versions as pyproject.toml has them; the bare name of anything else."""
    try:
        stated = metadata.requires("hwgen") or []
    except metadata.PackageNotFoundError:  # run from a folder, without an installation
        stated = []
    for requirement in stated:
        text = requirement.split(";")[0].strip()
        if re.match(rf"{re.escape(package)}(?![\w.-])", text):
            return text
    return package
