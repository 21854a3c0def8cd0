"""Commands that install missing packages into this Python's environment."""

from __future__ import annotations

import os
import re
import shlex
import sys
from importlib import metadata


def command(package: str) -> str:
    """Return the shell command that installs a supported version of a package into this Python's environment.

    Parameters
    ----------
    package : str
        Name of a package that hwgen or one of its extras requires.
    """
    python = sys.executable or "python3"
    below = os.path.relpath(python)
    if not below.startswith(os.pardir):
        python = below
    return f"{shlex.quote(python)} -m pip install {shlex.quote(_requirement(package))}"


def _requirement(package: str) -> str:
    """Return hwgen's requirement on a package as text, with extras and versions, or another package's bare name."""
    try:
        stated = metadata.requires("hwgen") or []
    except metadata.PackageNotFoundError:  # run from a folder, without an installation
        stated = []
    for requirement in stated:
        text = requirement.split(";")[0].strip()
        if re.match(rf"{re.escape(package)}(?![\w.-])", text):
            return text
    return package
