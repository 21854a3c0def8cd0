"""Text files of this package: files that are equal for all designs, and templates, such as for Makefiles.

Makefiles run the test benches of result folders, and lint the Verilog.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

from jinja2 import PackageLoader

from hwgen import rendering
from hwgen.emit import wrapper
from hwgen.simulate import testbench

_TEMPLATES = PackageLoader("hwgen.emit", ".")


def text(name: str) -> str:
    """Return the text of the file ``name`` in this package."""
    return resources.files("hwgen.emit").joinpath(name).read_text(encoding="utf-8")


def rendered(template: str, **values: Any) -> str:
    """Return the text of the template ``TEMPLATE.j2``, with its variables replaced by ``values``."""
    return rendering.render(_TEMPLATES, template, **values)


def makefile_of_bench(top: str) -> str:
    """Return the Makefile of an accelerator's folder, with targets ``icarus``, ``verilator``, ``lint`` and ``clean``.

    The targets ``icarus`` and ``verilator`` run the test bench, and fail if the test bench fails.
    """
    return rendered("bench.mk", top=top, module=testbench.module(top), wrapper=wrapper.module(top))


def makefile_of_lint(top: str) -> str:
    """Return the Makefile (text) of a folder without test bench, whose only target ``lint`` lints the modules."""
    return rendered("lint.mk", top=top, wrapper=wrapper.module(top))


def makefile_of_groups(tops: Sequence[str]) -> str:
    """Return a Makefile, as text, that runs its targets in the folders of several accelerators."""
    return rendered("groups.mk", groups=tops)
