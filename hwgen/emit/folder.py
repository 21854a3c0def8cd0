"""Writer of an accelerator's result folder: Verilog, memory files, a test bench with its Makefile, and a report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from struct import iter_unpack

import numpy as np

from hwgen import processes
from hwgen.boards import Board
from hwgen.devices import DEFAULT
from hwgen.emit import manifest, serial, texts, weights, wrapper
from hwgen.emit.bus_package import AcceleratorPackage
from hwgen.errors import InputError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.circuit_ports import Config, error_ports, input_ports, output_ports, tied_ports
from hwgen.gateware.load.loaded_memory import PART_BITS
from hwgen.gateware.names import identifier, identifiers
from hwgen.gateware.stream import Port
from hwgen.obligations import obligation
from hwgen.prove import catalogue
from hwgen.simulate import stimuli, testbench
from hwgen.verilog.emitted import Factory, files

#: Name of the file with waivers for Verilator's ``-Wall``.
LINT = "lint.vlt"
_MAX_LISTED = 20
"""Maximum number of file names in an error message."""


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
    software: Mapping[str, bytes] | None = None,
    others: Mapping[str, bytes] | None = None,
    say: Callable[[str], None] = lambda line: None,
    force: bool = False,
) -> Path:
    """Write an accelerator's result folder (Verilog, test bench, drivers, report), all files or none; return its path.

    The folder then has ``NAME.v`` with its ``.mem`` files, ``NAME.proofs.json`` with the proof obligations of its
    modules, ``NAME_axi.v`` with ``NAME_axi.proofs.json``, ``registers.json`` and its versions for C and Python,
    ``NAME_driver.py``, ``NAME_driver.c`` with its header, ``component.xml``, ``package_ip.tcl``, for some boards
    ``project.tcl``, ``NAME_tb.v`` with ``stimulus.hex`` and ``expected.hex``, ``Makefile``, ``lint.vlt``,
    ``plan.json``, ``report.md``, and ``manifest.json``, which lists all of them. With several inputs or outputs the
    test bench reads
    ``stimulus_0.hex`` or ``expected_0.hex`` and so on.

    Files that an earlier build wrote and this build does not write are removed, unless they were changed since. All
    other files of the folder stay.

    Parameters
    ----------
    plan_json : str
        Contents of ``plan.json``.
    config : AcceleratorConfig
        Configuration of the accelerator.
    frames : ndarray, or sequence of ndarray
        Integers ``(n, C, H, W)`` that the test bench sends, for each input.
    expected : ndarray, or sequence of ndarray
        Integers ``(n, C, H, W)`` that the test bench expects, for each output.
    directory : path
        Output folder, created if it is missing.
    report : str
        Summary of the plan for ``report.md``, in Markdown. `build` adds a list of the files.
    component : callable, optional
        Factory of another component than ``Accelerator``.
    board : Board, optional
        Board of the plan, for the scripts that Vivado runs.
    software : mapping of str to bytes, optional
        Contents of more files that drivers need, by name. The IP and the files for a PYNQ board contain them, too.
    others : mapping of str to bytes, optional
        Contents of more files, by name.
    say : callable, optional
        Receiver of a line of text for each file of an earlier build that is kept, and for a clock without a serial top.
    force : bool
        Whether files that hwgen did not write, or that were changed since, are overwritten.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InputError
        If the folder can't be written, files in the folder would be lost, or frames or expected outputs do not fit.
    ToolError
        If one of the accelerator's operators can't be written as Verilog.
    """
    check_folder(directory)
    directory = Path(directory)
    inputs, outputs = ([maps] if isinstance(maps, np.ndarray) else maps for maps in (frames, expected))
    needed = {"plan.json": plan_json.encode(), **(software or {})}
    contents = needed | _contents(identifier(config.name), config, inputs, outputs, report, component, board, needed)
    replace_folder({**contents, **(others or {})}, directory, say, force=force)
    if board is not None and (line := serial.clock_remark(config, board)) is not None:
        say(line)
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
    """Write a folder with an accelerator's result folder per fusion group, all files or none; return the outer path.

    ``directory`` then has a folder for each group, as `build` writes it, ``plan.json``, ``report.md`` and a
    ``Makefile`` that runs all test benches. The groups run in order, and each reads the maps that the previous group
    writes. The other parameters are the parameters of `build`.

    Parameters
    ----------
    configs : sequence of AcceleratorConfig
        Configuration of each group.
    maps : sequence of ndarray
        Integers ``(n, C, H, W)``: the input of the first group, and the output of each group.

    Raises
    ------
    InputError, ToolError
        Under the same conditions as `build`.
    """
    check_folder(directory)
    directory = Path(directory)
    tops = identifiers(config.name for config in configs)
    contents = {}
    for top, config, frames, expected in zip(tops, configs, maps[:-1], maps[1:], strict=True):
        title = f"# {config.name}\n\nOne of the groups of layers in `../report.md`."
        for name, content in _contents(top, config, [frames], [expected], title, None, board).items():
            contents[f"{top}/{name}"] = content
    contents["Makefile"] = texts.makefile_of_groups(tops).encode()
    contents["plan.json"] = plan_json.encode()
    folders = "\n".join(f"- `{top}`" for top in tops)
    summary = f"{report.rstrip()}\n\n## Folders\n\nEach group has a folder, in this order:\n\n{folders}\n"
    contents["report.md"] = summary.encode(errors="backslashreplace")
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
    """Return a dictionary of all files of an accelerator's result folder, as bytes by file name.

    ``top`` is the name of its module. ``software`` names files for drivers that other functions write, and that the IP
    contains, too.
    """
    sources, sinks, count = input_ports(config), output_ports(config), len(frames[0])
    for maps in (*frames, *expected):
        if count != len(maps):
            raise InputError(f"frames and expected outputs must be as many, not {count} and {len(maps)}")
    stalls = stimuli.Stalls.make(None, 0, len(sinks), len(sources))
    load = [word for (word,) in iter_unpack("<I", getattr(config, "first_load", None) or b"")]
    device = DEFAULT if board is None else board.family
    contents = files(config, component=component, top=top, device=device)
    package = AcceleratorPackage(shell=wrapper.shell_of(config, contents), top=top)
    around = package.files(board)
    if isinstance(config, AcceleratorConfig) and config.loader is not None:
        around[weights.NAME] = weights.describe(config, top)
    around |= package.scripts(board, [*contents, *around, *software])
    if board is not None:
        around |= serial.files(config, top, board, package.shell.build_hash)
    contents[f"{testbench.module(top)}.v"] = testbench.bench(
        top,
        inputs=sources,
        outputs=sinks,
        frames=count,
        idle=testbench.patience(config) + len(load),
        stalls=stalls,
        errors=error_ports(config),
        ties=tied_ports(config),
        load_words=len(load),
    ).encode()
    if load:
        contents[testbench.LOAD] = "".join(f"{word:08x}\n" for word in load).encode()
    for index, (maps, port) in enumerate(zip(frames, sources, strict=True)):
        contents[testbench.stimulus(index, len(sources))] = _hex(maps, port)
    for index, (maps, port) in enumerate(zip(expected, sinks, strict=True)):
        contents[testbench.expected(index, len(sinks))] = _hex(maps, port)
    contents["Makefile"] = texts.makefile_of_bench(top).encode()
    contents[LINT] = waivers()
    if component is None and isinstance(config, AcceleratorConfig):
        verilog = contents[f"{top}.v"].decode()
        contents[f"{top}{obligation.SUFFIX}"] = catalogue.proofs(config, top, verilog)
        contents |= package.proofs(around[f"{package.module}.v"].decode(), verilog)
    slowest = max((layer.cycles for layer in getattr(config, "layers", ())), default=max(end.beats for end in sources))
    all_files = contents | around
    contents["report.md"] = package.report(
        "accelerator.md",
        report,
        all_files,
        memories=sum(name.endswith(".mem") for name in all_files),
        beats=[name for name in all_files if name.endswith(".hex") and name != testbench.LOAD],
        load=testbench.LOAD if load else None,
        bench=testbench.module(top),
        frames=count,
        streams=[*((port, "in", "out") for port in sources), *((port, "out", "in") for port in sinks)],
        beat_text=_beat_text,
        errors=error_ports(config),
        has_weights_ports=bool(tied_ports(config)),
        weights_bits=PART_BITS + 1,
        ends=(*package.shell.inputs, *package.shell.outputs),
        speed=wrapper.bus_cycles_text,
        slowest=slowest,
    )
    return contents | around


def waivers() -> bytes:
    """Return Verilator's waiver file ``lint.vlt`` as bytes, the same for all designs."""
    return texts.text(LINT).encode()


def _hex(frames: np.ndarray, port: Port) -> bytes:
    """Return a stream's beats with given frames as bytes for ``$readmemh``, one beat per line."""
    return stimuli.to_hex(stimuli.pack(frames, port.beat, port.order), port.beat)


def check_folder(directory: str | Path) -> None:
    """Raise InputError if an output folder can't be created or written.

    Call this function before a long computation whose results go into the folder.

    Raises
    ------
    InputError
        If the path is a file, or if there is no permission to write into the nearest existing folder of the path.
    """
    if not str(directory):
        raise InputError("output folder must have a name, not ''")
    folder = target = Path(os.path.realpath(directory))
    if folder.is_symlink():
        raise InputError(f"output folder {directory} can't be written: it is a symbolic link that refers to itself")
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        reason = "it is a file" if folder == target else f"{folder} is not a folder"
        raise InputError(f"output folder {directory} can't be written: {reason}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"output folder {directory} can't be written: no permission to write in {folder}")


def _refuse_overwriting(contents: Mapping[str, bytes], directory: Path, *, force: bool) -> None:
    """Raise InputError if writing files to an output folder would overwrite a user's own files.

    With ``force`` only symbolic links are refused.

    Raises
    ------
    InputError
        If the folder has a symbolic link with the name of a file in ``contents``. Without ``force`` also if it has a
        file with such a name that hwgen did not write, or that was changed since.
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
    """Return the first 20 file names, joined by commas, and the number of further ones, as text."""
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def replace_folder(
    contents: dict[str, bytes],
    directory: Path,
    say: Callable[[str], None] = lambda line: None,
    *,
    force: bool = False,
) -> None:
    """Write files and their manifest into an output folder, and remove an earlier build's files from it.

    The files are written into a temporary folder first and then moved, so that a new folder appears complete. In an
    existing folder unchanged files keep their time. Files of the old manifest that are not in ``contents`` are
    removed, unless they were changed since. All other files stay. If the folder is a symbolic link, the files are
    written into the folder that the link points to.

    Parameters
    ----------
    contents : dict of str to bytes
        Contents of the files, by path in the folder.
    directory : Path
        Output folder, created if it is missing.
    say : callable
        Receiver of a line of text for each file of the old manifest that stays because it was changed.
    force : bool
        Whether files that hwgen did not write, or that were changed since, are overwritten.

    Raises
    ------
    InputError
        If the folder can't be written, or files in the folder would be lost.
    """
    created: list[Path] = []
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
            created.append(missing)
            missing = missing.parent
        directory.parent.mkdir(parents=True, exist_ok=True)
        fresh = not directory.exists()
        with processes.folder(".hwgen-", directory.parent if fresh else directory) as work:
            changed = []
            for name, content in contents.items():
                target = directory / name
                if target.is_dir():
                    raise IsADirectoryError(21, f"{name} there is a folder")
                if fresh or not target.is_file() or target.read_bytes() != content:
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
                created.clear()
                for name in manifest.remove(directory, stale):
                    say(f"kept {shown / name}: an earlier build wrote it, and it was changed since")
    except OSError as error:
        raise InputError(f"output folder {shown} can't be written: {error.strerror or error}") from error
    finally:
        for folder in created:
            with suppress(OSError):
                folder.rmdir()


def _beat_text(port: Port, bench: str) -> str:
    """Return a text for ``report.md`` on a stream's beats: order of values, lanes, bits.

    ``bench`` names the module of the test bench.
    """
    beat, order = port.beat, port.order
    sign = "signed" if beat.signed else "unsigned"
    channels = "channel" if beat.lanes == 1 else "channels"
    beats = "beat" if beat.folds == 1 else "beats"
    pixels = f" of {beat.pixels} neighbouring pixels" if beat.pixels > 1 else ""
    side = ", the pixels of a channel next to each other" if beat.pixels > 1 else ""
    groups = f" ({beat.group_folds} for each of {beat.groups} channel groups)" if beat.groups > 1 else ""
    of_pixels = f"{beat.pixels} pixels" if beat.pixels > 1 else "pixel"
    tiles = len(order.rows), len(order.columns)
    rectangles = f"rectangle by rectangle ({tiles[0]} x {tiles[1]}, listed in `{bench}.v`), each row-major"
    ragged = any(
        end - columns.start != len(columns) * beat.pixels or columns.start != begin
        for (begin, end), columns in zip(order.columns, order.beat_columns(beat.pixels), strict=True)
    )
    rest = "; pixels past the ends of a row can have any value" if ragged else ""
    return (
        f"{beat.channels} x {beat.height} x {beat.width} (channels, rows, columns), "
        f"{'row-major' if order == beat.raster else rectangles}: {beat.lanes} {channels}"
        f"{pixels} per beat, the lowest in the lowest bits{side}, {sign} {beat.bits} bits each; {beat.folds} {beats}"
        f"{groups} per {of_pixels}{rest}; the top bit marks the last beat of a frame"
    )
