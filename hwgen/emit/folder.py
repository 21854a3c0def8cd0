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

__all__ = ["LINT", "build", "build_groups", "check_folder", "replace_folder", "waivers"]

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
    errors, everything = error_ports(config), contents | around
    contents["report.md"] = package.report(
        "accelerator.md",
        report,
        everything,
        memories=sum(name.endswith(".mem") for name in everything),
        beats=[name for name in everything if name.endswith(".hex")],
        bench=testbench.module(top),
        frames=count,
        streams=[*((port, "in", "out") for port in sources), *((port, "out", "in") for port in sinks)],
        beat_text=_beat_text,
        errors=errors,
        has_weights_ports=bool(tied_ports(config)),
        weights_bits=PART_BITS + 1,
        ends=(*package.shell.inputs, *package.shell.outputs),
        speed=wrapper.speed,
        slowest=slowest,
    )
    return contents | around


def waivers() -> bytes:
    """The contents of `LINT`: the same for all Verilog that is written."""
    return resources.files("hwgen.emit").joinpath(LINT).read_bytes()


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


def _beat_text(port: Port, bench: str) -> str:
    """Return what a stream's payload is, for people; ``bench`` is the module of the test bench."""
    beat, order = port.beat, port.order
    sign = "signed" if beat.signed else "unsigned"
    channels = "channel" if beat.lanes == 1 else "channels"
    beats = "beat" if beat.folds == 1 else "beats"
    pixels = f" of {beat.pixels} neighbouring pixels" if beat.pixels > 1 else ""
    side = ", a channel's pixels side by side" if beat.pixels > 1 else ""
    groups = f" ({beat.group_folds} for each of {beat.groups} groups of channels)" if beat.groups > 1 else ""
    of_pixels = f"{beat.pixels} pixels" if beat.pixels > 1 else "pixel"
    tiles = len(order.rows), len(order.columns)
    travels = f"rectangle by rectangle ({tiles[0]} x {tiles[1]}, listed in `{bench}.v`), each row-major"
    ragged = any(
        end - columns.start != len(columns) * beat.pixels or columns.start != begin
        for (begin, end), columns in zip(order.columns, order.beat_columns(beat.pixels), strict=True)
    )
    rest = "; pixels past the ends of a row may be anything" if ragged else ""
    return (
        f"{beat.channels} x {beat.height} x {beat.width} (channels, rows, columns), "
        f"{'row-major' if order == beat.raster else travels}: {beat.lanes} {channels}"
        f"{pixels} a beat, the lowest in the lowest bits{side}, {sign} {beat.bits} bits each; {beat.folds} {beats}"
        f"{groups} {'for ' if beat.pixels > 1 else 'a '}{of_pixels}{rest}; the top bit marks the last beat of a frame"
    )
