"""Lists of proof obligations (``*.proofs.json``) in a folder that ``hwgen build`` wrote, with the Verilog to prove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hwgen.errors import InputError
from hwgen.fields import content_of
from hwgen.obligations import obligation as documents
from hwgen.obligations.modules import SYNTHESIS, VerilogModule, modules_of
from hwgen.obligations.obligation import Obligation
from hwgen.prove.coverage import CoveredInstance, coverage
from hwgen.prove.methods import structure
from hwgen.prove.methods.registry import METHODS
from hwgen.prove.wrapper import Wrapped, wrapped

_HELP = "build the design again"


@dataclass(frozen=True)
class ObligationList:
    """Obligations in one ``*.proofs.json`` file of a build folder, with the modules of its Verilog file.

    Parameters
    ----------
    path : Path
        File with the list.
    verilog : str
        Name of the Verilog file.
    obligations : list of Obligation
        Obligations of the list.
    reasons : dict of str to str
        Why instances have no functional property, by path.
    modules : dict of str to VerilogModule
        Modules of the Verilog file, by name.
    """

    path: Path
    verilog: str
    obligations: list[Obligation]
    reasons: Mapping[str, str]
    modules: Mapping[str, VerilogModule]

    @property
    def top(self) -> str:
        """Name of the top module in the list's Verilog file."""
        return Path(self.verilog).stem


def read_lists(folder: Path) -> list[ObligationList]:
    """Return a list of each `ObligationList` (``*.proofs.json``) in a folder that ``hwgen build`` wrote.

    Raises
    ------
    InputError
        If the folder has no list, or a list or its Verilog can't be read.
    """
    paths = sorted([*folder.glob(f"*{documents.SUFFIX}"), *folder.glob(f"*/*{documents.SUFFIX}")])
    if not paths:
        raise InputError(f"folder {folder} has no obligations (*{documents.SUFFIX}): give one that 'hwgen build' wrote")
    read = [(path, *documents.read(content_of(path, _HELP), str(path))) for path in paths]
    return [
        ObligationList(path, name, obligations, reasons, modules_of(_text(path.parent, name)))
        for path, name, obligations, reasons in read
    ]


def obligations_of(lists: Sequence[ObligationList]) -> list[tuple[Obligation, Wrapped]]:
    """Return a list of (`Obligation`, `Wrapped`) pairs: a folder's obligations, and the Verilog to prove each on.

    Raises
    ------
    InputError
        If the Verilog does not fit the obligations.
    """
    pairs = []
    for listed in lists:
        modules = _modules(listed, lists)
        for obligation in listed.obligations:
            _check_methods(obligation, listed.path)
            _check_path(obligation, listed.path, listed.top, modules)
            try:
                pairs.append((obligation, wrapped(obligation, modules, partial(_text, listed.path.parent))))
            except InputError as error:
                raise InputError(f"{_title(obligation, listed.path)}: {error}") from error
    return pairs


def _modules(listed: ObligationList, lists: Sequence[ObligationList]) -> dict[str, VerilogModule]:
    """Return the modules of a list's Verilog file, and of other files in its folder, as a dict by module name."""
    beside = [other.modules for other in lists if other.path.parent == listed.path.parent]
    return {name: module for more in (*beside, listed.modules) for name, module in more.items()}


def coverage_of(lists: Sequence[ObligationList]) -> list[CoveredInstance]:
    """Return a list: a `CoveredInstance` per instance in a folder's Verilog, with its kinds of obligations."""
    files: dict[tuple[Path, str], list[ObligationList]] = {}
    for listed in lists:
        files.setdefault((listed.path.parent, listed.verilog), []).append(listed)
    return [
        covered
        for same in files.values()
        if same[0].top in same[0].modules
        for covered in coverage(
            same[0].top,
            same[0].modules,
            [obligation for listed in same for obligation in listed.obligations],
            {path: reason for listed in same for path, reason in listed.reasons.items()},
        )
    ]


def _title(obligation: Obligation, path: Path) -> str:
    """Return a text that names an obligation in error messages: file, kind and instance."""
    return f"{path}, obligation {obligation.kind} of {obligation.path or 'top'}"


def _text(folder: Path, name: str) -> str:
    try:
        return content_of(folder / name, _HELP).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{folder / name} is not UTF-8 text ({error.reason}): build the design again") from error


def _check_methods(obligation: Obligation, path: Path) -> None:
    """Raise InputError for an obligation that no method here can read, such as one of a newer version of hwgen.

    Raises
    ------
    InputError
        If a method is unknown, or has not its parameters.
    """
    wrong = [f"method {name!r} is unknown" for name in obligation.methods if name not in METHODS]
    wrong += [
        f"structure {name!r} is unknown"
        for name in obligation.structure
        if name not in {"cycles", "held", *structure.CHECKS}
    ]
    wrong += [
        f"structure {name!r} has a wrong form"
        for name, fits in structure.FORMS.items()
        if name in obligation.structure and not fits(obligation.structure[name])
    ]
    cycles, held = obligation.structure.get("cycles"), obligation.structure.get("held", {})
    if not (isinstance(held, dict) and all(type(count) is int and count >= 0 for count in held.values())):
        wrong.append("structure 'held' has a wrong form")
    for method in ("exhaustive", "algebra"):
        if method in obligation.methods and not (type(cycles) is int and cycles >= 0):
            wrong.append(f"{method!r} needs a number of cycles")
    if "induction" in obligation.methods and not (cycles is None or (type(cycles) is int and cycles >= 1)):
        wrong.append(f"'induction' needs one cycle or more, not {cycles!r}")
    if not obligation.methods:
        wrong.append("it has no method")
    if wrong:
        raise InputError(f"{_title(obligation, path)}: {wrong[0]}: build the design again with this version of hwgen")


def _check_path(obligation: Obligation, path: Path, top: str, modules: Mapping[str, VerilogModule]) -> None:
    """Raise InputError if an obligation's instance belongs to another module than the one it proves.

    ``top`` is the top module, which the obligation's path starts at. ``path`` is the obligation's file.

    Raises
    ------
    InputError
        If there is no such instance, or its module is another one.
    """
    kind = top if obligation.path else obligation.module
    for instance in filter(None, obligation.path.split(".")):
        kind = modules[kind].instances.get(instance, "") if kind in modules else ""
    if kind != obligation.module.removesuffix(SYNTHESIS):
        state = f"is of module {kind}" if kind else "is not in the Verilog"
        raise InputError(
            f"{_title(obligation, path)}: the instance {state}, and module {obligation.module} would be proved: build "
            "the design again"
        )
