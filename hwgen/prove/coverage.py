"""Coverage of a design by its obligations: which instances have a functional property, and why the others have none.

A functional property says which values or beats leave an instance. That a beat stays until it is taken, that a register
is reset, or that a FIFO does not overflow says less. An instance without a functional property can compute anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from amaranth.lib import wiring

from hwgen.gateware.arithmetic.booth_row import BoothRow
from hwgen.gateware.arithmetic.slice_chain import SliceChain
from hwgen.gateware.arithmetic.ternary_adder import TernaryAdder
from hwgen.gateware.bias import AddBias
from hwgen.gateware.bus.engine_shell import EngineShellConfig, EngineWrapper
from hwgen.gateware.bus.shell import AcceleratorWrapper
from hwgen.gateware.bus.wrapper import Wrapper
from hwgen.gateware.bus.wrapper_proof import WrapperUnit
from hwgen.gateware.credits import Credits
from hwgen.gateware.engine import fetch, load, store
from hwgen.gateware.engine.add import TableAddConfig
from hwgen.gateware.engine.array import Array
from hwgen.gateware.engine.bursts import Bursts
from hwgen.gateware.engine.check import JobCheck
from hwgen.gateware.engine.check_proof import CheckUnit
from hwgen.gateware.engine.core import Core, CoreConfig
from hwgen.gateware.engine.drain import DrainWalk, DrainWalkConfig
from hwgen.gateware.engine.engine import Engine, EngineDesign
from hwgen.gateware.engine.fetch_proof import PartQueueUnit
from hwgen.gateware.engine.finish import FinishConfig
from hwgen.gateware.engine.lanes import Lanes
from hwgen.gateware.engine.load import Placement
from hwgen.gateware.engine.map_memory import MapMemoryConfig
from hwgen.gateware.engine.memory_side import MemorySideConfig
from hwgen.gateware.engine.output_words import OutputWords
from hwgen.gateware.engine.pool import Pool
from hwgen.gateware.engine.port import MemoryPort
from hwgen.gateware.engine.reuse_buffer import ReuseBuffer
from hwgen.gateware.engine.steps import Steps, StepsConfig
from hwgen.gateware.engine.units_proof import (
    BurstUnitConfig,
    FetchUnitConfig,
    LoadUnitConfig,
    PortUnitConfig,
    StoreUnitConfig,
)
from hwgen.gateware.engine.weight_buffer import WeightBuffer
from hwgen.gateware.engine.writes import Align
from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.load.loaded_requantise import LoadedRequantise
from hwgen.gateware.load.loaded_table_sum import LoadedTableSum
from hwgen.gateware.load.loader import LoaderConfig
from hwgen.gateware.lut_products import LutProducts
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.gateware.multiply_proof import is_mixed
from hwgen.gateware.normalise import Normalise, NormaliseConfig
from hwgen.gateware.product_sums import Chains
from hwgen.gateware.pyramid.buffer import PyramidBufferConfig
from hwgen.gateware.reorder import Reorder, ReorderLayerConfig
from hwgen.gateware.requantise import Requantise
from hwgen.gateware.running_scale import RunningScale, RunningScaleLayerConfig
from hwgen.gateware.select import CollectLayerConfig, Select
from hwgen.gateware.serial.link import SerialLinkConfig
from hwgen.gateware.serial.uart import UartReceiver, UartTransmitter
from hwgen.gateware.threshold import Threshold
from hwgen.obligations.modules import SYNTHESIS, VerilogModule
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Site

__all__ = ["FUNCTIONAL", "REASONS", "STATED_WITH", "UNKNOWN", "Covered", "coverage", "is_functional", "reasons_of"]

#: Kinds of obligations that state which values or beats leave a component.
FUNCTIONAL = frozenset(
    (
        *("bias", "bound", "checksum", "dot", "elementwise", "logic", "pool"),
        *("registers", "requantise", "rules", "scale", "sum", "threshold", "tokens", "weights"),
    )
)
#: Reason of an instance for which none is stated.
UNKNOWN = "hwgen states no property of such an instance"

_LOADED = "its constants are loaded at run time: 'hwgen simulate' checks what it computes from them"
_TABLES = "what is written to its tables, and when, is simulated"
_ADDRESSES = "where it writes words in the buffers is simulated"
_MEMORY = "a memory of run time, whose words are free in the proofs around it"
_PIECES = "its memory is in several pieces of block RAM"
_BANKS = f"{_PIECES}: its windows are simulated"
_WRITTEN = "what is written to its FIFOs, and when, is simulated"
_KEPT = "connections of a memory for maps are proved in part: 'hwgen simulate' checks the rest"

#: Reasons why components have no functional property, by class of configuration, or functions of the configuration and
#: the site that return them. They are texts by what they concern: the component (an empty name), instances inside (a
#: pattern of paths), or ports that no property depends on (``:PORT`` or ``INSTANCE:PORT``). Instances inside have the
#: reason of the component around them. An empty text states nothing.
REASONS: dict[type, Mapping[str, str] | Callable[[Any, Site], Mapping[str, str]]] = {
    LayerConfig: lambda layer, site: _reasons_of_layer(layer),
    FifoConfig: {"": f"{_PIECES}: its beats are simulated"},
    LineBufferConfig: {"": _BANKS},
    PyramidBufferConfig: {"": _BANKS},
    CollectLayerConfig: {"": "its copies of channels are simulated"},
    ReorderLayerConfig: {"": "its order of pixels is simulated"},
    RunningScaleLayerConfig: {"": "its scale by a running maximum is simulated"},
    LoaderConfig: {":open_*": "that no frame begins during a load is simulated"},
    PortUnitConfig: {"": "the bus, its errors, and the pace of requests are stated in part"},
    LoadUnitConfig: {"": _ADDRESSES},
    FetchUnitConfig: {"bursts:o__payload": "marks of rows and blocks, which a fetch has no use for"},
    StoreUnitConfig: {":part__ready": _WRITTEN, "granted:w_port__data": _WRITTEN, "words:w_port__data": _WRITTEN},
    MemorySideConfig: lambda config, site: {
        "": _KEPT if config.engine.has_map_memory else "",
        "placement*": _ADDRESSES,
    },
    MapMemoryConfig: {"bank_*": _MEMORY, "bursts:w_*": _WRITTEN},
    CoreConfig: lambda config, site: {
        "": "connections of several cores are proved in part" if config.engine.has_cores else "",
        "lanes": "which lanes compute a pixel is simulated",
        "maps": "the buffer of maps, with its banks, is simulated",
        "weights": "the buffer of weights, with its banks, is simulated",
        "array": "the array's products and sums are simulated",
    },
    FinishConfig: {"": "parameters of channels, activation tables, pool and output buffer are simulated"},
    TableAddConfig: {"share_*": _TABLES, "rounding_*": _TABLES},
    EngineShellConfig: {"": "of an engine's bus shell the registers alone are proved: the rest is simulated"},
    SerialLinkConfig: {"": "the link to a host is simulated"},
}

#: Components whose property, or reason, is stated with another component: the class of that one's configuration.
STATED_WITH: dict[type[wiring.Component], type] = {
    **dict.fromkeys((Chains, LutProducts, SliceChain, TernaryAdder, BoothRow, Credits), LayerConfig),
    **dict.fromkeys((Requantise, AddBias, Threshold, Normalise, LoadedRequantise, LoadedTableSum), LayerConfig),
    Select: CollectLayerConfig,
    Reorder: ReorderLayerConfig,
    RunningScale: RunningScaleLayerConfig,
    Wrapper: WrapperUnit,
    AcceleratorWrapper: WrapperUnit,
    EngineWrapper: WrapperUnit,
    UartReceiver: SerialLinkConfig,
    UartTransmitter: SerialLinkConfig,
    Engine: EngineDesign,
    Core: CoreConfig,
    Steps: StepsConfig,
    DrainWalk: DrainWalkConfig,
    **dict.fromkeys((Array, Lanes, ReuseBuffer, WeightBuffer, Align), CoreConfig),
    Pool: FinishConfig,
    OutputWords: FinishConfig,
    Placement: MemorySideConfig,
    Bursts: BurstUnitConfig,
    MemoryPort: PortUnitConfig,
    load.LoadUnit: LoadUnitConfig,
    fetch.FetchUnit: FetchUnitConfig,
    fetch.PartQueue: PartQueueUnit,
    store.StoreUnit: StoreUnitConfig,
    JobCheck: CheckUnit,
}


def _reasons_of_layer(layer: LayerConfig) -> Mapping[str, str]:
    """Return why parts of a layer have no functional property."""
    compute = layer.compute
    reasons = dict.fromkeys(layer.loaded_parts, _LOADED)
    if isinstance(compute, NormaliseConfig):
        reasons["compute"] = "its quotients are simulated"
    elif isinstance(compute, MultiplyConfig) and is_mixed(compute):
        reasons["compute"] = "sums of several steps with constants in LUTs beside DSP slices are simulated"
    return reasons


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
        """Whether the instance has a functional property, and none of its ports is left out."""
        return not (self.reason or self.ports)

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
        Reasons that the build stated, by path, or by path and port (``PATH:PORT``). Those of a path hold for the
        instances inside as well.
    """
    kinds: dict[str, dict[str, bool]] = {}
    shared: dict[str, dict[str, bool]] = {}  # by module: what is assumed of nothing around holds for each instance
    for obligation in obligations:
        functional = is_functional(obligation)
        if functional and not obligation.assumes:
            shared.setdefault(obligation.module.removesuffix(SYNTHESIS), {})[obligation.kind] = True
        kinds.setdefault(obligation.path, {})[obligation.kind] = functional
        for kept in obligation.keeps if functional else ():
            kinds.setdefault(_inside(obligation.path, kept), {}).setdefault(obligation.kind, True)
    covered = []
    for path, module in _instances("", modules[top], modules):
        own = shared.get(module, {}) | kinds.get(path, {})
        reason = "" if any(own.values()) else _nearest(path, reasons)
        ports = {
            port: text for name, text in reasons.items() for at, _, port in [name.partition(":")] if port and at == path
        }
        covered.append(Covered(path, module, tuple(own), reason, ports))
    return covered


def reasons_of(config: Any, site: Site) -> dict[str, str]:
    """Return why a component, instances inside, or ports have no property, by path or by path and port."""
    stated = next((REASONS[base] for base in type(config).__mro__ if base in REASONS), {})
    texts = stated(config, site) if callable(stated) else stated
    names = ["", *site.all_instances]
    names += [f":{port}" for port in site.module.ports]
    names += [f"{name}:{port}" for name, ports in site.module.connections.items() for port in ports]
    return {
        _named(site.path, name): text
        for pattern, text in texts.items()
        for name in names
        if text and fnmatchcase(name, pattern) and name.count(".") == pattern.count(".")
    }


def _named(path: str, name: str) -> str:
    """Return the whole name of an instance or port inside a path."""
    return f"{path}{'.' if path and name and not name.startswith(':') else ''}{name}"


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
