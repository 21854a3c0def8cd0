"""hwgen: from a trained, quantised CNN to a verified FPGA accelerator.

    import hwgen

    design = hwgen.load("digits.onnx").plan(board="zedboard")
    result = design.simulate(images)

Names are imported on first use, so that ``import hwgen`` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hwgen.api import Design, Model, Pixels, Result, check, from_torch, load, quantise, sweep
    from hwgen.errors import (
        BoardError,
        CheckError,
        ConfigError,
        DeviceError,
        HwgenError,
        InputError,
        ModelError,
        ObstaclesError,
        PlanError,
        ToolError,
    )
    from hwgen.host import Session

    __version__: str

__all__ = [
    "BoardError",
    "CheckError",
    "ConfigError",
    "Design",
    "DeviceError",
    "HwgenError",
    "InputError",
    "Model",
    "ModelError",
    "ObstaclesError",
    "Pixels",
    "PlanError",
    "Result",
    "Session",
    "ToolError",
    "check",
    "from_torch",
    "load",
    "quantise",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name in ("Design", "Model", "Pixels", "Result", "check", "from_torch", "load", "quantise", "sweep"):
        import hwgen.api

        return getattr(hwgen.api, name)
    if name == "Session":
        import hwgen.host

        return hwgen.host.Session
    if name in __all__:
        import hwgen.errors

        return getattr(hwgen.errors, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("hwgen")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
