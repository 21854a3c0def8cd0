"""Base class of the devices that a session computes on."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hwgen.api.arrays import Values
from hwgen.api.design import Design
from hwgen.api.golden import GoldenModel
from hwgen.api.model import Model
from hwgen.errors import InputError

__all__ = ["Hardware", "SessionDevice", "check_options"]

#: File in a result folder whose presence tells that the folder is of an engine.
_ENGINE = "engine.json"


@dataclass(frozen=True, eq=False)
class Hardware:
    """Design that a session computes on: made in this program, or in a folder that ``Design.build`` wrote.

    Parameters
    ----------
    model : GoldenModel
        Model that the design computes. The host runs its operators in front of and behind the hardware.
    folder : Path, optional
        Folder of the design.
    made : Design, optional
        Design that was made in this program.
    """

    model: GoldenModel
    folder: Path | None = None
    made: Design | None = None

    @property
    def is_engine(self) -> bool:
        """Whether the folder is that of an engine, which needs a program of the model."""
        return self.folder is not None and (self.folder / _ENGINE).exists()

    @cached_property
    def design(self) -> Design:
        """Design, for a folder made again from its plan, or compiled for its engine.

        Raises
        ------
        InputError
            If there is no design in the folder, or it is of another model.
        """
        if self.made is not None:
            return self.made
        assert self.folder is not None
        assert isinstance(self.model, Model)
        if self.is_engine:
            return self.model.compile(self.folder)
        from hwgen.plan import document

        path = self.folder / "plan.json"
        try:
            board = document.board_name(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            board = None
        if board is None:
            raise InputError(f"{self.folder} has no plan.json that hwgen wrote: build the design again")
        return self.model.plan(board, plan=path)


def check_options(
    device: str, options: Mapping[str, Any], *functions: Callable[..., Any], reserved: Collection[str] = ()
) -> None:
    """Refuse options of a device that none of the functions has that take them, or that the device gives itself.

    Parameters
    ----------
    reserved : collection of str
        Parameters of the functions that the device gives itself.

    Raises
    ------
    InputError
        If a function lacks an option, with the names of all.
    """
    known = {
        name: None
        for function in functions
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in reserved
        and (parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not parameter.empty)
    }
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InputError(f"device {device} has no option {', '.join(unknown)}; it has {', '.join(known)}")


class SessionDevice(ABC):
    """Base class of devices, which compute the outputs of a model for frames.

    Parameters
    ----------
    hardware : Hardware
        Design that the device computes.
    **options
        Options of the device.
    """

    name: ClassVar[str]
    """Name of the device, as a session takes it."""

    def __init__(self, hardware: Hardware):
        self.hardware = hardware

    @abstractmethod
    def compute(self, x: Mapping[str, np.ndarray]) -> Values:
        """Compute the model's outputs for frames of each input, by its name.

        Returns
        -------
        ndarray, or dict of str to ndarray
            Outputs ``(n, ...)`` in the model's own type; a dict by name if there are several.
        """
