"""Errors that hwgen raises on purpose, each with one line that says what is wrong, where, why, and what would work.

The command line prints the line and exits with status 2, or 1 for a `CheckError`; in Python these are ordinary
exceptions. Only an `ObstaclesError`, which has several causes, has several lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwgen import printable


class HwgenError(Exception):
    """Base class of every error that hwgen raises on purpose."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Tuple of lines of the error's message as hwgen prints them. Line ends inside names become spaces."""
        return (" ".join(str(self).split()),)

    def __str__(self) -> str:
        return printable.text(super().__str__())


class ConfigError(HwgenError, ValueError):
    """Error of a hardware component whose parameters contradict each other."""


class ModelError(HwgenError):
    """Error of a model that can't be read, or that contains something hwgen does not build."""


class ObstaclesError(ModelError):
    """Error of a model that can't be built for several reasons: a ``heading``, and one line per obstacle."""

    def __init__(self, heading: str, obstacles: Sequence[str]) -> None:
        self._lines = tuple(" ".join(line.split()) for line in (heading, *obstacles))
        super().__init__("\n  ".join(self._lines))

    @property
    def lines(self) -> tuple[str, ...]:
        return self._lines

    def __reduce__(self) -> tuple[type[ObstaclesError], tuple[str, tuple[str, ...]]]:
        """Return a tuple of the class and its arguments for pickle, which would otherwise keep only the message.

        Returns
        -------
        type, tuple
            The class, and the heading and the obstacles.
        """
        return type(self), (self._lines[0], self._lines[1:])


class InputError(HwgenError):
    """Error of an input array, an input file or an option with a wrong form or value."""


class PlanError(HwgenError):
    """Error of a plan that is impossible for the network or on the board."""


class BoardError(HwgenError):
    """Error of an unknown board, or of an unreadable, incomplete or wrong board file."""


class DeviceError(HwgenError):
    """Error of a board that a session computes on: missing hardware, another design, or a failed run."""


class ToolError(HwgenError):
    """Error of an external tool, such as a compiler or simulator, that is missing or failed."""


class InternalError(HwgenError):
    """Error of hwgen itself, detected before any file is written. The model and the options are not at fault."""


class CheckError(HwgenError):
    """Error of a failed check: simulated hardware got stuck or sent surplus beats, or a sweep found no plan."""
