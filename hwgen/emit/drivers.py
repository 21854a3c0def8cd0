"""Writer of the drivers in a design's folder: in Python for boards with Linux, in C for bare-metal programs.

The Python driver of an accelerator or an engine is one file, which this module joins of the part that both share and
the part of its own. C drivers are templates; the names and tables of the design are filled in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

from hwgen.emit import wrapper
from hwgen.emit.texts import text
from hwgen.gateware.bus.shell import BusStreamConfig, ShellConfig

#: Imports between parts of a Python driver, which a joined file does not need.
_WITHIN = "from hwgen."


def python_driver(own: str) -> bytes:
    """Return the source (bytes) of the Python driver for accelerators or engines: a common part and the part ``own``.

    The file joins the common part, ``board_driver.py``, and the part ``own``, and is equal for all designs.
    """
    return python_file("board_driver.py", own)


def python_file(*parts: str) -> bytes:
    """Return the source (bytes) of one Python file that joins modules of this package; the docstring is the last's."""
    imports: set[str] = set()
    definitions = []
    for part in parts:
        source = text(part)
        docstring, *statements = ast.parse(source).body
        heads = [each for each in statements if isinstance(each, (ast.Import, ast.ImportFrom))]
        imports |= {ast.unparse(head) for head in heads}
        lines = source.splitlines(keepends=True)
        definitions.append("".join(lines[heads[-1].end_lineno :]).strip("\n"))
    future, *others = sorted((line for line in imports if not line.startswith(_WITHIN)), key=_import_order)
    head = "".join(lines[: docstring.end_lineno])
    return "\n".join([head, future, "", *others, "", *("\n" + part + "\n" for part in definitions)]).encode()


def _import_order(line: str) -> tuple[bool, bool, bool, str]:
    """Return a tuple that sorts import statements: ``__future__``, ``import``, ``from .. import``, NumPy."""
    return not line.startswith("from __future__"), "numpy" in line, line.startswith("from "), line


def c_driver(shell: ShellConfig, top: str) -> dict[str, bytes]:
    """Return, as a dictionary, an accelerator's C driver, source and header, as bytes by file name.

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
        f"{top}_driver.h": fill_template("driver.h", names, "sizes", sizes),
        f"{top}_driver.c": fill_template("driver.c", names, "layouts", _layouts(ends)),
    }


def fill_template(name: str, names: Mapping[str, str], mark: str = "", lines: Iterable[str] = ()) -> bytes:
    """Return a C driver file, as bytes, from a template filled with a design's names and tables.

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
    source = re.sub("|".join(names), lambda match: names[match[0]], text(name))
    source = source.replace("/* @platform@ */", text("platform.h").rstrip())
    return source.replace(f"/* @{mark}@ */", "\n".join(lines)).encode()


def _layouts(ends: Iterable[BusStreamConfig]) -> list[str]:
    """Return a list of lines of C tables with the memory layout of a frame on each stream of an accelerator."""
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
