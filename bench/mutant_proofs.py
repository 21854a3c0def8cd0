"""Proofs as judges of mutants: the obligations of small designs whose Verilog a mutant changes.

Each design is built twice, in processes of their own: by the sound code and by the mutant's. An obligation whose
modules are the same in both needs no proof. A refuted one objects if the sound one is proved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

#: Largest number of changed obligations that are proved for a mutant.
OBLIGATIONS = 60


@dataclass(frozen=True)
class Built:
    """Verilog of a design, its proof obligations, and the files with contents of memories.

    Parameters
    ----------
    verilog : str
    obligations : list of dict
        The obligations as JSON objects.
    contents : dict of str to str, optional
        Texts of the files that the Verilog's memories read, by name.
    """

    verilog: str
    obligations: list[dict[str, Any]]
    contents: Mapping[str, str] = field(default_factory=dict)


def designs() -> dict[str, Callable[[], tuple[str, list[dict[str, Any]], dict[str, str]]]]:
    """Return functions that build a small design, and return the fields of its `Built`, by the design's name."""
    import small_circuits
    from programs import SMALL
    from proofs import of_component
    from small_circuits import COMPONENTS, DESIGNS, engine_of

    from hwgen.fields import written
    from hwgen.gateware.accelerator import AcceleratorConfig
    from hwgen.prove import catalogue
    from hwgen.tools.synthesis import SideBySide
    from hwgen.verilog import convert
    from hwgen.verilog.emitted import files

    def of_design(design: Callable[[], tuple[Any, str, str]]) -> tuple[str, list[dict[str, Any]], dict[str, str]]:
        config, top, verilog = design()
        obligations = [written(obligation) for obligation in catalogue.obligations(config, top, verilog)]
        reads = ".INIT(" in verilog and isinstance(config, AcceleratorConfig)
        return verilog, obligations, _contents(files(config, top=top)) if reads else {}

    def of_config(config: Any) -> tuple[str, list[dict[str, Any]], dict[str, str]]:
        made = convert(SideBySide([config.component()]), "top")
        verilog = made["top.v"].decode()
        return verilog, [written(obligation) for obligation in of_component(config, verilog)], _contents(made)

    others = [getattr(small_circuits, name) for name in ("FIFO", "DEEP_FIFO", "REGROUP", "GUARD", "PACKETS", "UNLOAD")]
    components = {f"{type(config).__name__} {index}": config for index, config in enumerate((*COMPONENTS, *others))}
    whole = {**DESIGNS, "engine of cores": lambda: engine_of(replace(SMALL, cores=4))}
    return {
        **{name: lambda config=config: of_config(config) for name, config in components.items()},
        **{name: lambda design=design: of_design(design) for name, design in whole.items()},
    }


def _contents(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the texts of the files with contents of memories, by name."""
    return {name: content.decode() for name, content in files.items() if name.endswith(".mem")}


def objection(sound: Built, changed: Built, seconds: float, deadline: float) -> str:
    """Return the first obligation of a changed design that is refuted; empty if there is none.

    Parameters
    ----------
    sound, changed : Built
        The design without and with the change.
    seconds : float
        Time limit of each method.
    deadline : float
        Value of `time.monotonic` after which no other proof begins.
    """
    from hwgen.prove.discharge import discharge_one

    for name, with_change, without in _changed(sound, changed):
        if time.monotonic() > deadline:
            break
        is_refuted = discharge_one(seconds, with_change).verdict.result == "refuted"
        if is_refuted and discharge_one(seconds, without).verdict.result == "proved":
            return name
    return ""


def _changed(sound: Built, changed: Built) -> Iterator[tuple[str, Any, Any]]:
    """Yield name and tasks, changed and sound, of obligations whose modules differ, fewest modules first.

    An obligation that the changed Verilog lacks a signal for is left out.
    """
    before, after = _tasks(sound), _tasks(changed)
    names = [name for name in after if name in before and after[name][0] != before[name][0]]
    names.sort(key=lambda name: len(after[name][2].modules))
    for name in names[:OBLIGATIONS]:
        yield name, after[name], before[name]


def _file(built: Built, name: str) -> str:
    """Return the text of a file with the contents of a memory, which must be one of the design's."""
    if name not in built.contents:
        raise ValueError(f"file {name} is missing, which a memory of the design reads")
    return built.contents[name]


def _tasks(built: Built) -> dict[str, Any]:
    """Return the task of `hwgen.prove.discharge.discharge_one` for each obligation, by kind, path and statement."""
    from hwgen import digest
    from hwgen.errors import InputError
    from hwgen.fields import Entries, written
    from hwgen.obligations.modules import modules_of
    from hwgen.obligations.obligation import Obligation
    from hwgen.prove.wrapper import wrapped

    modules, tasks = modules_of(built.verilog), {}
    for document in built.obligations:
        obligation = Entries(document, "an obligation").record(Obligation)
        try:
            wrapper = wrapped(obligation, modules, lambda name: _file(built, name))
        except InputError:
            continue
        name = f"{obligation.kind} of {obligation.path or 'top'}"
        while name in tasks:
            name += "'"
        key = digest.of(written(replace(obligation, module="", path="", statement="")), *vars(wrapper).values())
        tasks[name] = (key, obligation, wrapper)
    return tasks
