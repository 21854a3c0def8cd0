"""The errors that hwgen raises on purpose: each is one line that says what, where, why and what would work.

The command line prints such an error and exits with status 2; in Python they are ordinary exceptions.
"""


class HwgenError(Exception):
    """Base of every error that the user can mend."""


class ConfigError(HwgenError, ValueError):
    """A component's configuration contradicts itself."""


class ModelError(HwgenError):
    """A model that can't be read, or that holds something hwgen does not build."""


class InputError(HwgenError):
    """An input array, or an option, that does not fit."""


class PlanError(HwgenError):
    """A plan that can't work: for this network, or within this board."""


class BoardError(HwgenError):
    """An unknown board, or a board file that lacks something."""


class ToolError(HwgenError):
    """An outside tool (compiler, simulator) that is missing or failed."""


class CheckError(HwgenError):
    """Simulated hardware that broke a rule: it got stuck, or gave beats that no input explains."""
