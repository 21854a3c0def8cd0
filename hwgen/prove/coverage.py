"""Coverage of a design by its obligations: which instances have a functional property, and why the others have none.

A functional property says which values or beats leave an instance. That a beat stays until it is taken, that a register
is reset, or that a FIFO does not overflow says less. An instance without a functional property can compute anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hwgen.prove.modules import VerilogModule
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site

__all__ = ["FUNCTIONAL", "REASONS", "UNKNOWN", "Covered", "coverage", "is_functional", "reason_of"]

#: Kinds of obligations that state which values or beats leave a component.
FUNCTIONAL = frozenset(
    (
        *("bias", "bound", "checksum", "dot", "elementwise", "logic", "pool"),
        *("registers", "requantise", "rules", "scale", "sum", "threshold", "tokens"),
    )
)
#: Reason of an instance for which none is stated.
UNKNOWN = "hwgen states no property of such an instance"

#: Reasons why components have no functional property, by class of configuration: texts, or functions of the
#: configuration and the site that return one. Instances inside have the reason of the component around them.
REASONS: dict[type, str | Callable[[Any, Site], str]] = {}


@dataclass(frozen=True)
class Covered:
    """Instance of a design, with the kinds of its obligations.

    Parameters
    ----------
    path : str
        Path of the instance; empty for the top module.
    module : str
        Name of the instance's module.
    kinds : tuple of str
        Kinds of the instance's obligations, and the functional ones of instances around it that keep it.
    reason : str
        Why the instance has no functional property; empty if it has one.
    """

    path: str
    module: str
    kinds: tuple[str, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the instance as a JSON object."""
        return asdict(self)


def is_functional(obligation: Obligation) -> bool:
    """Return whether an obligation states which values leave a component, or the source of each of its ports."""
    return obligation.kind in FUNCTIONAL or "composition" in obligation.structure


def coverage(
    top: str, modules: Mapping[str, VerilogModule], obligations: Iterable[Obligation], reasons: Mapping[str, str]
) -> list[Covered]:
    """Return the instances of a design, from the top module on, each before those inside.

    Parameters
    ----------
    top : str
        Name of the top module.
    modules : mapping of str to VerilogModule
        Modules of the design's Verilog, by name. An instance of another module is left out.
    obligations : iterable of Obligation
        All obligations of the design.
    reasons : mapping of str to str
        Reasons that the build stated, by path. They hold for the instances inside as well.
    """
    kinds: dict[str, dict[str, bool]] = {}
    for obligation in obligations:
        functional = is_functional(obligation)
        kinds.setdefault(obligation.path, {})[obligation.kind] = functional
        for kept in obligation.keeps if functional else ():
            kinds.setdefault(_inside(obligation.path, kept), {}).setdefault(obligation.kind, True)
    covered = []
    for path, module in _instances("", modules[top], modules):
        own = kinds.get(path, {})
        reason = "" if any(own.values()) else _nearest(path, reasons)
        covered.append(Covered(path, module, tuple(own), reason))
    return covered


def reason_of(config: Any, site: Site) -> str:
    """Return why a component may have no functional property; empty if nothing is stated for its class."""
    reason = next((REASONS[base] for base in type(config).__mro__ if base in REASONS), "")
    return reason(config, site) if callable(reason) else reason


def _nearest(path: str, reasons: Mapping[str, str]) -> str:
    """Return the reason of the innermost instance with one, among that of a path and those around it."""
    steps: Sequence[str] = path.split(".") if path else []
    around = (".".join(steps[:count]) for count in range(len(steps), -1, -1))
    return next((reasons[name] for name in around if name in reasons), UNKNOWN)


def _inside(path: str, instance: str) -> str:
    return f"{path}.{instance}" if path else instance


def _instances(path: str, module: VerilogModule, modules: Mapping[str, VerilogModule]) -> Iterator[tuple[str, str]]:
    """Yield path and module of an instance, and of all instances inside."""
    yield path, module.name
    for instance, name in module.instances.items():
        if name in modules:
            yield from _instances(_inside(path, instance), modules[name], modules)
