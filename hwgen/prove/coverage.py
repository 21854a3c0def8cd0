"""Coverage of a design by obligations: instances with a functional property, and reasons why others have none.

A functional property says which values or beats leave an instance. That a beat stays until it is accepted, that a
register is reset, or that a FIFO does not overflow says less. An instance without a functional property can compute
anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hwgen.obligations.modules import SYNTHESIS, VerilogModule
from hwgen.obligations.obligation import Obligation

#: Set of the kinds (names) of obligations that state which values or beats leave a component.
FUNCTIONAL = frozenset(
    (
        *("bias", "bound", "checksum", "dot", "elementwise", "logic", "pool"),
        *("registers", "requantise", "rules", "scale", "sum", "threshold", "tokens", "weights"),
    )
)
#: Reason given for an instance that has no stated reason.
UNKNOWN = "hwgen states no property of such an instance"


@dataclass(frozen=True)
class CoveredInstance:
    """Instance in a design: kinds of its proof obligations, and reasons for what is not proved.

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
    ports : dict of str to str
        Why no property depends on some ports, by port.
    """

    path: str
    module: str
    kinds: tuple[str, ...]
    reason: str
    ports: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether the instance has a functional property that covers all of its ports."""
        return not (self.reason or self.ports)

    def to_json(self) -> dict[str, Any]:
        """Return, as a dictionary, the instance as a JSON object with its fields."""
        return asdict(self)


def is_functional(obligation: Obligation) -> bool:
    """Return whether an obligation states the values that leave a component, or the driver of each port."""
    return obligation.kind in FUNCTIONAL or "composition" in obligation.structure


def coverage(
    top: str, modules: Mapping[str, VerilogModule], obligations: Iterable[Obligation], reasons: Mapping[str, str]
) -> list[CoveredInstance]:
    """Return a list of each `CoveredInstance` of a design, depth first, with the kinds of its obligations.

    Parameters
    ----------
    top : str
        Name of the top module.
    modules : mapping of str to VerilogModule
        Modules of the design's Verilog, by name. An instance of another module is left out.
    obligations : iterable of Obligation
        All obligations of the design.
    reasons : mapping of str to str
        Reasons that the build stated, by path, or by path and port (``PATH:PORT``). A path's reason also holds for the
        instances inside.
    """
    kinds: dict[str, dict[str, bool]] = {}
    shared: dict[str, dict[str, bool]] = {}  # by module: what is assumed of nothing around holds for each instance
    for obligation in obligations:
        functional = is_functional(obligation)
        if functional and not obligation.assumes:
            shared.setdefault(obligation.module.removesuffix(SYNTHESIS), {})[obligation.kind] = True
        kinds.setdefault(obligation.path, {})[obligation.kind] = functional
        for kept in obligation.keeps if functional else ():
            kinds.setdefault(_instance_path(obligation.path, kept), {}).setdefault(obligation.kind, True)
    covered = []
    for path, module in _instances("", modules[top], modules):
        own = shared.get(module, {}) | kinds.get(path, {})
        reason = "" if any(own.values()) else _nearest_reason(path, reasons)
        ports = {
            port: text for name, text in reasons.items() for at, _, port in [name.partition(":")] if port and at == path
        }
        covered.append(CoveredInstance(path, module, tuple(own), reason, ports))
    return covered


def _nearest_reason(path: str, reasons: Mapping[str, str]) -> str:
    """Return why an instance, or the nearest one that contains it, has no functional property; else `UNKNOWN`."""
    steps: Sequence[str] = path.split(".") if path else []
    around = (".".join(steps[:count]) for count in range(len(steps), -1, -1))
    return next((reasons[name] for name in around if name in reasons), UNKNOWN)


def _instance_path(path: str, instance: str) -> str:
    return f"{path}.{instance}" if path else instance


def _instances(path: str, module: VerilogModule, modules: Mapping[str, VerilogModule]) -> Iterator[tuple[str, str]]:
    """Yield (path, module name) of an instance and of all instances inside it."""
    yield path, module.name
    for instance, name in module.instances.items():
        if name in modules:
            yield from _instances(_instance_path(path, instance), modules[name], modules)
