"""Drivers in C for programs without an operating system: ``NAME_driver.c`` and ``NAME_driver.h``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import resources

from hwgen.emit import wrapper
from hwgen.gateware.bus.shell import EndConfig, ShellConfig

__all__ = ["files", "filled"]


def files(shell: ShellConfig, top: str) -> dict[str, bytes]:
    """Both files of a design; they go with ``NAME_registers.h``.

    Parameters
    ----------
    shell : ShellConfig
        Of the bus wrapper.
    top : str
        The accelerator's module: what its functions begin with.
    """
    inputs, ends = len(shell.inputs), (*shell.inputs, *shell.outputs)
    prefix = top.upper()
    # All in one go: the design's name may hold what is replaced.
    names = {"accelerator_axi": wrapper.module(top), "accelerator_": f"{top}_", "ACCELERATOR_": f"{prefix}_"}
    sizes = [
        f"#define {prefix}_INPUTS {inputs}u",
        f"#define {prefix}_STREAMS {len(ends)}u",
        f"#define {prefix}_DMAS {max(inputs, len(shell.outputs))}u",
    ]
    return {
        f"{top}_driver.h": filled("driver.h", names, "sizes", sizes),
        f"{top}_driver.c": filled("driver.c", names, "layouts", _layouts(ends)),
    }


def filled(name: str, names: Mapping[str, str], mark: str = "", lines: Iterable[str] = ()) -> bytes:
    """Return a file of this package for a design: with the design's names, and with lines in the place of a mark."""
    text = re.sub("|".join(names), lambda found: names[found[0]], _text(name))
    text = text.replace("/* @platform@ */", _text("platform.h").rstrip())
    return text.replace(f"/* @{mark}@ */", "\n".join(lines)).encode()


def _text(name: str) -> str:
    return resources.files("hwgen.emit").joinpath(name).read_text(encoding="utf-8")


def _layouts(ends: Iterable[EndConfig]) -> list[str]:
    """How each stream's frames lie in memory, as the driver's structures."""
    tables, rows = [], []
    for end in ends:
        told = wrapper.stream(end)
        layout = told["layout"]
        sizes = [told["bytes"], told["frame_bytes"], told["value_bytes"]]
        sizes += [layout[key] for key in ("channels", "height", "width", "pixels")]
        for key, width in (("folds", 2), ("rows", 2), ("columns", 3)):
            entries = ", ".join(f"{{{', '.join(map(str, each))}}}" for each in layout[key])
            tables.append(f"static const uint32_t {end.name}_{key}[][{width}] = {{{entries}}};")
            sizes.append(len(layout[key]))
        names = ", ".join(f"{end.name}_{key}" for key in ("folds", "rows", "columns"))
        rows.append(f"    {{{', '.join(map(str, sizes))}, {names}}}, /* {end.name} */")
    return [*tables, "", "static const stream_layout layouts[] = {", *rows, "};"]
