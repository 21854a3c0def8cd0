"""The errors that hwgen raises on purpose: each is one line that says what, where, why and what would work.

The command line prints such an error and exits with status 2; in Python they are ordinary exceptions. Only what has
several causes, `ObstaclesError`, has several lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwgen import printable


class HwgenError(Exception):
    """Base of every error that hwgen raises on purpose."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines of the message as printed. Line ends inside names become spaces."""
        return (" ".join(str(self).split()),)

    def __str__(self) -> str:
        return printable.text(super().__str__())


class ConfigError(HwgenError, ValueError):
    """A component's configuration contradicts itself."""


class ModelError(HwgenError):
    """A model that can't be read, or that holds something hwgen does not build."""


class ObstaclesError(ModelError):
    """A model with several things that can't be built: ``heading``, and a line for each of the ``obstacles``."""

    def __init__(self, heading: str, obstacles: Sequence[str]) -> None:
        self._lines = tuple(" ".join(line.split()) for line in (heading, *obstacles))
        super().__init__("\n  ".join(self._lines))

    @property
    def lines(self) -> tuple[str, ...]:
        return self._lines

    def __reduce__(self) -> tuple[type[ObstaclesError], tuple[str, tuple[str, ...]]]:
        """Return the constructor's arguments for pickle, which would keep the text alone."""
        return type(self), (self._lines[0], self._lines[1:])


class InputError(HwgenError):
    """An input array, or an option, that does not fit."""


class PlanError(HwgenError):
    """A plan that can't work: for this network, or within this board."""


class BoardError(HwgenError):
    """An unknown board, or a board file that lacks something."""


class ToolError(HwgenError):
    """An outside tool (compiler, simulator) that is missing or failed."""


class InternalError(HwgenError):
    """A defect of hwgen that it found itself before it wrote anything; no model or option is wrong."""


class CheckError(HwgenError):
    """Simulated hardware that broke a rule: it got stuck, or gave beats that no input explains."""
