"""The folder of an accelerator: Verilog, memory files, a test bench with its Makefile, the plan and a report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path

import numpy as np

from hwgen import processes
from hwgen.boards import Board
from hwgen.emit import makefile, manifest, stimuli, testbench, weights, wrapper
from hwgen.emit.bus_package import AcceleratorPackage
from hwgen.emit.verilog import Config, Factory, error_ports, files, identifier, input_ports, output_ports, tied_ports
from hwgen.errors import InputError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.load.store import PART_BITS
from hwgen.gateware.names import identifiers
from hwgen.gateware.stream import Port

__all__ = ["LINT", "build", "build_groups", "check_folder", "replace_folder", "report_of_files", "waivers"]

#: File of what Verilator's ``-Wall`` is told to accept.
LINT = "lint.vlt"
_MOST_LISTED = 20
"""Number of files that a refusal lists."""


def build(
    plan_json: str,
    config: Config,
    frames: np.ndarray | Sequence[np.ndarray],
    expected: np.ndarray | Sequence[np.ndarray],
    directory: str | Path,
    report: str,
    *,
    component: Factory | None = None,
    board: Board | None = None,
    others: Mapping[str, bytes] | None = None,
    say: Callable[[str], None] = lambda line: None,
    force: bool = False,
) -> Path:
    """Write everything about an accelerator into a folder: all of it, or nothing.

    ``NAME.v`` and its ``.mem`` files, ``NAME_axi.v`` with ``registers.json`` and the same for C and Python,
    ``NAME_driver.py``, ``NAME_driver.c`` with its header, ``component.xml``, ``package_ip.tcl``, for some
    boards ``project.tcl``, ``NAME_tb.v`` with ``stimulus.hex`` and ``expected.hex`` (``stimulus_0.hex`` or
    ``expected_0.hex`` and so on where there are several inputs or outputs), ``Makefile``, ``lint.vlt``,
    ``plan.json``, ``report.md``, and ``manifest.json``, which lists them all. What an earlier build wrote and this one
    doesn't goes, unless somebody changed it; all else in the folder stays. Files that hwgen did not write, or that
    somebody changed, are overwritten only with ``force``.

    Parameters
    ----------
    plan_json : str
        Contents of ``plan.json``.
    config : AcceleratorConfig
    frames : ndarray, or sequence of ndarray
        ``(n, C, H, W)`` integers that the test bench sends; of several inputs those of each.
    expected : ndarray, or sequence of ndarray
        ``(n, C, H, W)``: what must come out; of several outputs that of each.
    directory : path
        The folder, made if it is missing.
    report : str
        What ``report.md`` says of the plan, in Markdown; a list of the files is added.
    component : callable, optional
        Makes another component than ``Accelerator``.
    board : Board, optional
        The board, for the scripts that Vivado runs.
    others : mapping of str to bytes, optional
        More files of the folder, by their names.
    say : callable, optional
        Told what an earlier build wrote and was left there, a line each.
    force : bool
        Overwrite files that hwgen did not write, or that were changed since.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InputError
        If the folder can't be written, files in it would be lost, or frames or expected outputs don't fit.
    ToolError
        If Verilog can't be written of one of its operators.
    """
    check_folder(directory)
    directory = Path(directory)
    inputs, outputs = ([maps] if isinstance(maps, np.ndarray) else maps for maps in (frames, expected))
    plan = {"plan.json": plan_json.encode()}
    contents = plan | _contents(identifier(config.name), config, inputs, outputs, report, component, board, plan)
    replace_folder({**contents, **(others or {})}, directory, say, force=force)
    return directory


def build_groups(
    plan_json: str,
    configs: Sequence[Config],
    maps: Sequence[np.ndarray],
    directory: str | Path,
    report: str,
    *,
    board: Board | None = None,
    others: Mapping[str, bytes] | None = None,
    say: Callable[[str], None] = lambda line: None,
    force: bool = False,
) -> Path:
    """The same for groups that run one after the other: a folder for each within ``directory``, all or nothing.

    Beside these folders lie ``plan.json``, ``report.md`` and a ``Makefile`` that runs all test benches.

    Parameters
    ----------
    maps : sequence of ndarray
        ``(n, C, H, W)``: what goes into the first group, and what leaves each.
    board : Board, optional
        The board, for the scripts that Vivado runs.

    Raises
    ------
    InputError, ToolError
        As `build`.
    """
    check_folder(directory)
    directory = Path(directory)
    tops = identifiers(config.name for config in configs)
    contents = {}
    for top, config, frames, expected in zip(tops, configs, maps[:-1], maps[1:], strict=True):
        title = f"# {config.name}\n\nOne of the groups of layers that `../report.md` tells of."
        for name, content in _contents(top, config, [frames], [expected], title, None, board).items():
            contents[f"{top}/{name}"] = content
    contents["Makefile"] = makefile.of_groups(tops).encode()
    contents["plan.json"] = plan_json.encode()
    folders = "\n".join(f"- `{top}`" for top in tops)
    contents["report.md"] = f"{report.rstrip()}\n\n## Folders\n\nOne for each group, in order:\n\n{folders}\n".encode(
        errors="backslashreplace"
    )
    replace_folder({**contents, **(others or {})}, directory, say, force=force)
    return directory


def _contents(
    top: str,
    config: Config,
    frames: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    report: str,
    component: Factory | None,
    board: Board | None,
    software: Iterable[str] = (),
) -> dict[str, bytes]:
    """The files of one accelerator whose top module is ``top``, but for ``software``, which its IP has as well."""
    sources, sinks, count = input_ports(config), output_ports(config), len(frames[0])
    for each in (*frames, *expected):
        if count != len(each):
            raise InputError(f"frames and expected outputs must be as many, not {count} and {len(each)}")
    stalls = stimuli.Stalls.make(None, 0, len(sinks), len(sources))
    contents = files(config, component=component, top=top)
    package = AcceleratorPackage(shell=wrapper.shell_of(config, contents), top=top)
    around = package.files()
    if isinstance(config, AcceleratorConfig) and config.loader is not None:
        around[weights.NAME] = weights.describe(config, top)
    around |= package.scripts(board, [*contents, *around, *software])
    contents[f"{testbench.module(top)}.v"] = testbench.bench(
        top,
        inputs=sources,
        outputs=sinks,
        frames=count,
        idle=testbench.patience(config),
        stalls=stalls,
        errors=error_ports(config),
        ties=tied_ports(config),
    ).encode()
    for place, (each, port) in enumerate(zip(frames, sources, strict=True)):
        contents[testbench.stimulus(place, len(sources))] = _hex(each, port)
    for place, (each, port) in enumerate(zip(expected, sinks, strict=True)):
        contents[testbench.expected(place, len(sinks))] = _hex(each, port)
    contents["Makefile"] = makefile.of_bench(top).encode()
    contents[LINT] = waivers()
    slowest = max((layer.cycles for layer in getattr(config, "layers", ())), default=max(end.beats for end in sources))
    text = _report(report, config, package, contents | around, count) + "\n".join(_bus_report(package, slowest))
    contents["report.md"] = text.encode(errors="backslashreplace")
    return contents | around


def waivers() -> bytes:
    """The contents of `LINT`: the same for all Verilog that is written."""
    return resources.files("hwgen.emit").joinpath(LINT).read_bytes()


def _bus_report(package: AcceleratorPackage, slowest: int) -> list[str]:
    """The report's section on the bus wrapper; ``slowest``: cycles of the slowest layer."""
    shell, top, name = package.shell, package.top, package.module
    used = shell.resources
    rows = [
        f"| `{end.name}` | `{end.port.name}` | {8 * end.width} | {end.frame_bytes:,} | {end.words.count:,} | "
        f"{wrapper.speed(end, slowest)} |"
        for end in (*shell.inputs, *shell.outputs)
    ]
    return [
        "",
        "## Bus wrapper",
        "",
        f"`{name}` in `{name}.v` is `{top}` between AXI4-Streams, with registers on AXI4-Lite (`s_axi_control`) and",
        f"an interrupt; clock `aclk`, reset `aresetn`. It takes about {used.lut:,} LUTs and {used.ff:,} flip-flops",
        "more. A frame is the values of its beats, one after the other, lowest channel first, without lanes past the",
        "last channel.",
        "",
        "| stream | port | bits | bytes a frame | words a frame | cycles that it costs |",
        "| --- | --- | --- | --- | --- | --- |",
        *rows,
        "",
        f"Registers, as in `registers.json`, `{top}_registers.h` and `{top}_registers.py`:",
        "",
        *wrapper.table(shell.registers),
        "",
    ]


def _hex(frames: np.ndarray, port: Port) -> bytes:
    """A file for ``$readmemh``: the beats of frames."""
    return stimuli.to_hex(stimuli.pack(frames, port.beat, port.order), port.beat)


def check_folder(directory: str | Path) -> None:
    """Refuse, before any work, a folder that can't be made, or not written.

    Raises
    ------
    InputError
        If it is a file, or the nearest folder above it that exists may not be written.
    """
    if not str(directory):
        raise InputError("output folder must have a name, not ''")
    folder = target = Path(os.path.realpath(directory))
    if folder.is_symlink():
        raise InputError(f"output folder {directory} can't be written: it is a loop of symbolic links")
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        reason = "it is a file" if folder == target else f"{folder} is not a folder"
        raise InputError(f"output folder {directory} can't be written: {reason}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"output folder {directory} can't be written: no permission to write in {folder}")


def _refuse_overwriting(contents: Mapping[str, bytes], directory: Path, *, force: bool) -> None:
    """Refuse a folder in which a user's own files would be lost; with ``force`` only symbolic links.

    Raises
    ------
    InputError
    """
    names = manifest.foreign(directory, contents)
    links = [name for name in names if (directory / name).is_symlink()]
    if links:
        raise InputError(
            f"output folder {directory} has symbolic links where files would be written: {_listed(links)}; remove "
            "them, or give another folder"
        )
    if names and not force:
        raise InputError(
            f"output folder {directory} has files that hwgen did not write, or that were changed since: "
            f"{_listed(names)}; give another folder, or --force (in Python force=True), which overwrites them"
        )


def _listed(names: Sequence[str]) -> str:
    """Return names on one line, of many the first ones."""
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def replace_folder(
    contents: dict[str, bytes],
    directory: Path,
    say: Callable[[str], None] = lambda line: None,
    *,
    force: bool = False,
) -> None:
    """Let a folder hold these files and a manifest of them: written beside it first, then moved.

    A new folder appears complete. In one that is there already, unchanged files keep their time, files in the manifest
    that are not among these go, and all others stay. ``say`` is told of files in the manifest that stay because they
    were changed. Files that hwgen did not write, or that were changed, are overwritten with ``force`` only. A folder
    that is a symbolic link is written through it.

    Raises
    ------
    InputError
        If the folder can't be written, or files in it would be lost.
    """
    made: list[Path] = []
    others = {name: digest for name, digest in manifest.read(directory, "others").items() if name not in contents}
    contents = {**contents, manifest.NAME: manifest.of(contents, others)}
    shown, directory = directory, Path(os.path.realpath(directory))
    try:
        _refuse_overwriting(contents, shown, force=force)
    except OSError as error:
        raise InputError(f"output folder {shown} can't be read: {error.strerror or error}") from error
    stale = {name: digest for name, digest in manifest.read(directory).items() if name not in contents}
    try:
        missing = directory.parent
        while not missing.exists():
            made.append(missing)
            missing = missing.parent
        directory.parent.mkdir(parents=True, exist_ok=True)
        fresh = not directory.exists()
        with processes.folder(".hwgen-", directory.parent if fresh else directory) as work:
            changed = []
            for name, content in contents.items():
                place = directory / name
                if place.is_dir():
                    raise IsADirectoryError(21, f"{name} there is a folder")
                if fresh or not place.is_file() or place.read_bytes() != content:
                    (work / name).parent.mkdir(exist_ok=True)
                    (work / name).write_bytes(content)
                    changed.append(name)
            with processes.held():
                if fresh:
                    mask = os.umask(0)
                    os.umask(mask)
                    work.chmod(0o777 & ~mask)
                    os.rename(work, directory)
                else:
                    for name in changed:
                        (directory / name).parent.mkdir(exist_ok=True)
                        os.replace(work / name, directory / name)
                made.clear()
                for name in manifest.remove(directory, stale):
                    say(f"kept {shown / name}: an earlier build wrote it, and it was changed since")
    except OSError as error:
        raise InputError(f"output folder {shown} can't be written: {error.strerror or error}") from error
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


def report_of_files(text: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    """Lines of a report: what `text` says of the plan, and a table of these files and of those in every folder."""
    rows = [
        *rows,
        (f"`{LINT}`", "what Verilator's `-Wall` is told to accept in the Verilog, with reasons"),
        ("`plan.json`", "the plan; it can be edited and given back with `--plan`"),
    ]
    table = (f"| {name} | {what} |" for name, what in rows)
    return [text.rstrip("\n"), "", "## Files", "", "| file | what it is |", "| --- | --- |", *table, ""]


def _report(text: str, config: Config, package: AcceleratorPackage, contents: dict[str, bytes], frames: int) -> str:
    top = package.top
    memories = [name for name in contents if name.endswith(".mem")]
    beats = [name for name in contents if name.endswith(".hex")]
    rows = [
        (f"`{top}.v`", f"module `{top}` and those below it"),
        *([(f"`{top}.*.mem` ({len(memories)})", "contents of its memories, read by `$readmemh`")] if memories else []),
        (f"`{testbench.module(top)}.v`", f"self-checking test bench, {frames} {'frame' if frames == 1 else 'frames'}"),
        (", ".join(f"`{name}`" for name in beats), "its input beats, and the outputs of the golden model"),
        (f"`{package.module}.v`", f"module `{package.module}`, the same on AXI4 (see below)"),
        (
            f"`{wrapper.REGISTERS}`, `{top}_registers.h`, `{top}_registers.py`",
            "its registers and streams, for programs, for C and for Python",
        ),
        (f"`{top}_driver.py`", "runs it on a PYNQ board, from and into NumPy arrays"),
        (f"`{top}_driver.c`, `{top}_driver.h`", "runs it from C, without an operating system"),
        *([(f"`{weights.NAME}`", "what its weights may be, for `hwgen weights`")] if weights.NAME in contents else []),
        *package.script_rows(contents),
        ("`Makefile`", "`make icarus`, `make verilator`, `make lint`"),
    ]
    lines = [
        *report_of_files(text, rows),
        "## Ports",
        "",
        "| port | direction | bits | what it is |",
        "| --- | --- | --- | --- |",
        "| `clk`, `rst` | in | 1 | clock; reset, synchronous, active high |",
        *(line for port in input_ports(config) for line in _ports(port, top, ("in", "out"))),
        *(line for port in output_ports(config) for line in _ports(port, top, ("out", "in"))),
        *(line for name in error_ports(config) for line in _error_ports(name)),
        *(_weights_ports() if tied_ports(config) else []),
        "",
        "A beat moves in a cycle in which `valid` and `ready` are both high. `valid` does not wait for `ready`, and a",
        "payload holds until it is taken.",
        "",
    ]
    return "\n".join(lines)


def _weights_ports() -> list[str]:
    return [
        f"| `weights__payload` | in | {PART_BITS + 1} | a word of a load (`hwgen weights`); top bit: the last one |",
        "| `weights__valid` | in | 1 | a word is offered |",
        "| `weights__ready` | out | 1 | it is taken; a load waits until no frame is on its way |",
        "| `weights_state__good` | out | 1 | the memories hold what they should; otherwise frames wait |",
        "| `weights_state__error` | out | 1 | a load was wrong |",
        "| `weights_state__clear` | in | 1 | that stays high until this is |",
    ]


def _error_ports(name: str) -> list[str]:
    return [
        f"| `{name}__short` | out | 1 | a frame's last beat came too early; it was completed with zeros |",
        f"| `{name}__long` | out | 1 | a frame had more beats than it should; they were dropped |",
        f"| `{name}__clear` | in | 1 | both flags stay high until this is |",
    ]


def _ports(port: Port, top: str, directions: tuple[str, str]) -> list[str]:
    """Lines of a stream's ports; ``directions`` of what goes with the beats, and of what comes back."""
    name, beat, order = port.name, port.beat, port.order
    forth, back = directions
    sign = "signed" if beat.signed else "unsigned"
    channels = "channel" if beat.lanes == 1 else "channels"
    beats = "beat" if beat.folds == 1 else "beats"
    pixels = f" of {beat.pixels} neighbouring pixels" if beat.pixels > 1 else ""
    side = ", a channel's pixels side by side" if beat.pixels > 1 else ""
    groups = f" ({beat.group_folds} for each of {beat.groups} groups of channels)" if beat.groups > 1 else ""
    of_pixels = f"{beat.pixels} pixels" if beat.pixels > 1 else "pixel"
    tiles = len(order.rows), len(order.columns)
    travels = f"rectangle by rectangle ({tiles[0]} x {tiles[1]}, listed in `{testbench.module(top)}.v`), each row-major"
    ragged = any(
        end - columns.start != len(columns) * beat.pixels or columns.start != begin
        for (begin, end), columns in zip(order.columns, order.beat_columns(beat.pixels), strict=True)
    )
    rest = "; pixels past the ends of a row may be anything" if ragged else ""
    what = (
        f"{beat.channels} x {beat.height} x {beat.width} (channels, rows, columns), "
        f"{'row-major' if order == beat.raster else travels}: {beat.lanes} {channels}"
        f"{pixels} a beat, the lowest in the lowest bits{side}, {sign} {beat.bits} bits each; {beat.folds} {beats}"
        f"{groups} {'for ' if beat.pixels > 1 else 'a '}{of_pixels}{rest}; the top bit marks the last beat of a frame"
    )
    return [
        f"| `{name}__payload` | {forth} | {beat.data_bits + 1} | {what} |",
        f"| `{name}__valid` | {forth} | 1 | a beat is offered |",
        f"| `{name}__ready` | {back} | 1 | it is taken |",
    ]
