"""Options for reading a model (calibration, bits, input shape ..), one field per option.

An entry is a field of `ModelOptions`. The command line, the checks of Python's arguments and the documentation are made
from these entries, like a plan's options (`hwgen.options`).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwgen.errors import InputError
from hwgen.options import called, model_option, table
from hwgen.options.kinds import Choice, ValueKind

if TYPE_CHECKING:
    from hwgen.network.pixels import Pixels

EXACT, ROUNDED = "exact", "rounded"
"""Values of the option ``averages``: average pools with ONNX Runtime's float32 roundings, or means rounded once."""


class Argument(ValueKind):
    """Kind of option values that a function of `hwgen.arguments` accepts; ``check`` is the function's name."""

    def __init__(self, check: str, must_be: str, metavar: str):
        super().__init__(must_be, must_be, metavar)
        self.check = check

    def accepts(self, value: Any) -> bool:
        from hwgen import arguments

        return getattr(arguments, self.check)(value)


class RawPixels(ValueKind):
    """Kind of option values that are `Pixels` (raw-pixel preprocessing), made of several command-line options."""

    flag = "--input-type"

    def __init__(self) -> None:
        super().__init__("Pixels", "a Pixels, as hwgen.Pixels() makes one")

    def accepts(self, value: Any) -> bool:
        return hasattr(value, "deviation")

    def argument(self) -> dict[str, Any]:
        return {"choices": ["uint8"]}

    def more_arguments(self) -> dict[str, dict[str, Any]]:
        each = "one value, or one per channel"
        divisor = "with --input-type: 1 divides pixels by 255, 255 does not (default: 1)"
        return {
            "--mean": {"type": _numbers, "metavar": "M,..", "help": f"mean to subtract: {each} (default: 0)"},
            "--deviation": {"type": _numbers, "metavar": "D,..", "help": f"divisor: {each} (default: 1)"},
            "--pixel-range": {"dest": "range", "type": int, "choices": [1, 255], "help": divisor},
        }

    def given_value(self, arguments: argparse.Namespace, name: str) -> Pixels | None:
        from hwgen.network.pixels import Pixels

        flags = {"mean": "--mean", "deviation": "--deviation", "range": "--pixel-range"}
        settings = {field: value for field in flags if (value := getattr(arguments, field, None)) is not None}
        if getattr(arguments, "input_type", None) is not None:
            return Pixels(**settings)
        if settings:
            raise InputError(f"{flags[next(iter(settings))]} needs raw pixels: give --input-type uint8 as well")
        return None


class OpenSizes(ValueKind):
    """Kind of option values that are sizes of a tensor's open dimensions, as in ``224x320``."""

    def __init__(self) -> None:
        super().__init__("sequence of int", "positive integers, as in 224x320", "SIZES")

    def accepts(self, value: Any) -> bool:
        return isinstance(value, tuple | list) and all(type(size) is int and size > 0 for size in value)

    def parse(self, text: str) -> tuple[int, ...]:
        if not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8})*", text):
            raise argparse.ArgumentTypeError(f"must be {self.must_be}, not {text!r}")
        return tuple(map(int, text.split("x")))


def _numbers(text: str) -> tuple[float, ...]:
    """Parse numbers separated by commas, and return them as a tuple of floats, or raise ArgumentTypeError."""
    with suppress(ValueError):
        return tuple(map(float, text.split(",")))
    raise argparse.ArgumentTypeError(f"must be a number, or numbers with commas between them, not {text!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelOptions:
    """Options for reading a model; ``None`` for each option that is not given.

    Raises
    ------
    InputError
        If an option does not accept its value.
    """

    calibration: Any = model_option(
        Argument("are_frames_or_path", "an array, several of them, or the path of a .npy or .npz file", "X.npy"),
        "typical inputs: quantise a float model by them",
        "Frames in the model's shape, float32, or a ``.npy`` file. For a model with several inputs, a sequence "
        "of arrays, a dict of arrays by the inputs' names, or an ``.npz`` file. ONNX Runtime quantises.",
    )
    bits: int | None = model_option(Choice(8, 16), "with --calibration: bits of activations and weights (default 8)")
    until: str | Sequence[str] | None = model_option(
        Argument("are_texts", "the name of a tensor, or a sequence of names", "TENSOR"),
        "build the model up to this tensor, or with 'auto' up to the operators that can't be built; ONNX "
        "Runtime runs the rest on the host (see 'hwgen check'). 'end': the whole model or nothing "
        "(default: 'auto' if that part has at least half of the MACs, else 'end')",
        "Outputs are still the whole model's.",
    )
    shape: Sequence[int] | None = model_option(
        OpenSizes(),
        "sizes of the inputs' open dimensions, without the batch: 224x320 for (batch, 3, height, width)",
        "In the order of the inputs' dimensions; one size for all dimensions of one name.",
    )
    pixels: Pixels | None = model_option(
        RawPixels(),
        "inputs are raw pixels (0 to 255), which the hardware normalises to (pixel / 255 - mean) / deviation",
    )
    averages: str | None = model_option(
        Choice(EXACT, ROUNDED),
        "average pools: add in ONNX Runtime's order of float32 operations (exact, the default), or round the mean of "
        "the integers once (rounded), which every template computes and which differs from ONNX Runtime by at most 1",
        "Golden model and hardware are equal either way.",
    )

    def __post_init__(self) -> None:
        for name in self.given_names:
            kind, value = table(ModelOptions)[name].kind, getattr(self, name)
            if not kind.accepts(value):
                from hwgen.arguments import shown

                raise InputError(f"{called(name)} must be {kind.must_be}, not {shown(value)}")

    @property
    def given_names(self) -> tuple[str, ...]:
        """Tuple of names of the model options that are given, that is, not ``None``."""
        return tuple(name for name, value in vars(self).items() if value is not None)


AS_IT_IS = ModelOptions()
"""Model options with no option given: the model is read as it is."""
