"""C drivers for bare-metal programs, without an operating system: ``NAME_driver.c`` and ``NAME_driver.h``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import resources

from hwgen.emit import wrapper
from hwgen.gateware.bus.shell import EndConfig, ShellConfig

__all__ = ["files", "filled"]


def files(shell: ShellConfig, top: str) -> dict[str, bytes]:
    """Return the source and the header of an accelerator's C driver, by file name.

    The source includes ``NAME_registers.h``.

    Parameters
    ----------
    shell : ShellConfig
        Shell of the bus wrapper.
    top : str
        Name of the accelerator's module, which becomes the prefix of the driver's functions.
    """
    inputs, ends = len(shell.inputs), (*shell.inputs, *shell.outputs)
    prefix = top.upper()
    # A single pass replaces all names, because the design's name can contain one of the replaced names.
    names = {"accelerator_axi": wrapper.module(top), "accelerator_": f"{top}_", "ACCELERATOR_": f"{prefix}_"}
    load = f"\n *     status = {top}_load_weights(&device, weights, weights_bytes);"
    names["@load@"] = load if shell.weights else ""
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
    """Return a C driver file from a template of this package, with a design's names and tables filled in.

    Parameters
    ----------
    name : str
        Name of the file in this package.
    names : mapping of str to str
        Identifiers of the design, by the identifiers in the file that they replace.
    mark : str
        Mark in the file, ``/* @MARK@ */``, that the lines replace.
    lines : iterable of str
        C code for the mark.
    """
    text = re.sub("|".join(names), lambda match: names[match[0]], _text(name))
    text = text.replace("/* @platform@ */", _text("platform.h").rstrip())
    return text.replace(f"/* @{mark}@ */", "\n".join(lines)).encode()


def _text(name: str) -> str:
    return resources.files("hwgen.emit").joinpath(name).read_text(encoding="utf-8")


def _layouts(ends: Iterable[EndConfig]) -> list[str]:
    """Return C tables that give the memory layout of a frame, for each stream of an accelerator."""
    tables, rows = [], []
    for end in ends:
        description = wrapper.stream(end)
        layout = description["layout"]
        sizes = [description["bytes"], description["frame_bytes"], description["value_bytes"]]
        sizes += [layout[key] for key in ("channels", "height", "width", "pixels")]
        for key, width in (("folds", 2), ("rows", 2), ("columns", 3)):
            entries = ", ".join(f"{{{', '.join(map(str, entry))}}}" for entry in layout[key])
            tables.append(f"static const uint32_t {end.name}_{key}[][{width}] = {{{entries}}};")
            sizes.append(len(layout[key]))
        names = ", ".join(f"{end.name}_{key}" for key in ("folds", "rows", "columns"))
        rows.append(f"    {{{', '.join(map(str, sizes))}, {names}}}, /* {end.name} */")
    return [*tables, "", "static const stream_layout layouts[] = {", *rows, "};"]
