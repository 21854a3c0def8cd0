"""Proofs of single components: emitted Verilog with faults seeded in its text, and the obligations that refute them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerators import a_requantisation, requantised, size_buffers
from needs import needs_abc
from programs import SMALL

from hwgen import work
from hwgen.emit import wrapper
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.bus.wrapper_proof import WrapperUnit
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.gateware.multipliers import PLAIN
from hwgen.network.float32 import Label
from hwgen.network.graph import INPUT, Network
from hwgen.network.loaded import loaded
from hwgen.network.maps import UINT8, FeatureMap, Requantisation, Window
from hwgen.network.ops import Add, Conv, MaxPool
from hwgen.obligations.modules import modules_of
from hwgen.obligations.obligation import Obligation, Site
from hwgen.prove import catalogue, discharge
from hwgen.prove.wrapper import wrapped
from hwgen.templates.compose import compose
from hwgen.templates.layers import with_buffers
from hwgen.templates.search import layer_plan
from hwgen.templates.stages import stage_of
from hwgen.templates.work import Unroll
from hwgen.tools.synthesis import SideBySide
from hwgen.verilog import convert
from hwgen.verilog.emitted import ENGINE, engine_files, files

#: Marks of files whose proofs take no results from others.
ALONE = [
    needs_abc,
    pytest.mark.usefixtures("own_cache"),
]
FAULTS = Path(__file__).resolve().parents[1] / "prove" / "faults"
#: Name of the module of a single component.
MODULE = "top_part_0"


@cache
def emitted(config: Any) -> str:
    """Return the Verilog of a component as the module `MODULE`, which is not the top module: that has no constants."""
    return convert(SideBySide([config.component()]), "top")["top.v"].decode()


def with_fault(verilog: str, module: str, old: str, new: str) -> str:
    """Return the Verilog with ``new`` in the place of ``old``, which must be in ``module`` once or more."""
    text = modules_of(verilog)[module].text
    assert old in text, f"{old!r} is not in {module}"
    return verilog.replace(text, text.replace(old, new))


def kinds_in(text: str) -> set[str]:
    """Return the kinds of obligations that a field of a fault names."""
    return set(text.split(", "))


def faults_in(name: str, *read: Callable[[str], Any]) -> dict[str, tuple[Any, ...]]:
    """Return the faults of a file in rtl_tests/prove/faults: fields, text of the Verilog and faulty text, by title.

    A fault is a small patch: its title, with fields behind bars that ``read`` converts, and lines in backquotes.
    """
    found: dict[str, tuple[list[Any], dict[str, list[str]]]] = {}
    texts: dict[str, list[str]] = {}
    for line in (FAULTS / name).read_text(encoding="utf-8").splitlines():
        if line[0] in "-+":
            texts[line[0]].append(line[3:-1])
        else:
            title, *fields = line.split(" | ")
            texts = {"-": [], "+": []}
            found[title] = [convert(text) for convert, text in zip_longest(read, fields, fillvalue=str)], texts
    return {
        title: (*fields, *("\n".join(lines) for lines in texts.values())) for title, (fields, texts) in found.items()
    }


def marked(faults: Iterable[str], *cheap: str) -> list[Any]:
    """Return the names of faults; the default run refutes only the cheap ones."""
    return [
        pytest.param(name, id=name.replace(" ", "-"), marks=() if name in cheap else pytest.mark.long)
        for name in faults
    ]


def of_component(config: Any, verilog: str) -> list[Obligation]:
    modules = modules_of(verilog)
    return catalogue.of_component(config, Site("", modules[MODULE], modules))


def results_with_fault(config: Any, kinds: set[str], old: str, new: str) -> dict[str, str]:
    """Return the results of obligations of ``kinds``, with ``new`` in the place of ``old`` in the Verilog."""
    verilog = with_fault(emitted(config), MODULE, old, new)
    found = [obligation for obligation in of_component(config, verilog) if obligation.kind in kinds]
    assert {obligation.kind for obligation in found} == kinds
    return {name: proof.verdict.result for name, proof in proved(found, verilog).items()}


def unguarded(faults: Mapping[str, tuple[Any, set[str], str, str]]) -> set[tuple[str, str]]:
    """Return the component's class and the kind of each obligation that fewer than two of ``faults`` refute.

    ``reset`` has a test of its own.
    """
    configs = dict.fromkeys(config for config, *_ in faults.values())
    return {
        (type(config).__name__, kind)
        for config in configs
        for kind in {obligation.kind for obligation in of_component(config, emitted(config))} - {"reset"}
        if sum(kind in kinds for other, kinds, _, _ in faults.values() if type(other) is type(config)) < 2
    }


def proved(obligations: list[Obligation], verilog: str, seconds: float = 240) -> dict[str, discharge.Proof]:
    """Prove obligations of modules in ``verilog``, two at a time; return the proofs by name.

    The name is ``KIND`` or ``KIND:PATH``. Further obligations of this kind and path have an index: ``KIND:PATH:1``.
    """
    modules = modules_of(verilog)
    pairs = [(obligation, wrapped(obligation, modules)) for obligation in obligations]
    with work.pool(count=2, programs=True) as pool:
        proofs = discharge.discharge(pairs, seconds=seconds, pool=pool)
    names = [":".join(filter(None, (proof.obligation.kind, proof.obligation.path))) for proof in proofs]
    indices = [names[:position].count(name) for position, name in enumerate(names)]
    return {
        f"{name}:{index}" if index else name: proof for name, index, proof in zip(names, indices, proofs, strict=True)
    }


def results(config: Any, verilog: str | None = None, **options: Any) -> dict[str, str]:
    """Prove a component's obligations; return the result of each by its kind."""
    text = emitted(config) if verilog is None else verilog
    return {name: proof.verdict.result for name, proof in proved(of_component(config, text), text, **options).items()}


@cache
def chain(lut_lanes: int = 0, *, runtime: bool = False, converts_first: bool = False) -> tuple[AcceleratorConfig, str]:
    """Return an accelerator of a convolution and a pool on small maps, and its Verilog, whose top module is ``dut``.

    The convolution's folds have 3 and 2 channels, which a serialiser sends one by one, so that their claims differ. The
    products of the last ``lut_lanes`` of the 3 channels are made in LUTs, the others in DSP slices. With ``runtime``,
    the weights are loaded at run time. With ``converts_first``, the FIFO between both holds beats of the pool's two
    channels.
    """
    rng = np.random.default_rng(1)
    maps = [FeatureMap(channels=channels, height=size, width=size, type=UINT8) for channels, size in ((2, 4), (5, 4))]
    weights = rng.integers(-5, 6, (5, 2, 3, 3))
    conv = Conv(
        name="conv",
        input=maps[0],
        output=maps[1],
        window=Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
        weights=weights,
        bias=rng.integers(-50, 50, 5),
        requantisation=None,
    )
    pooled = FeatureMap(channels=5, height=2, width=2, type=UINT8)
    pool = MaxPool(name="pool", input=maps[1], output=pooled, window=Window(kernel=(2, 2), stride=(2, 2)))
    conv = requantised(rng, conv)
    network = Network(name="dut", layers=(conv, pool))
    if runtime:
        assert isinstance(conv.requantisation, Requantisation)
        rule = replace(conv.requantisation, float32=True)
        network = loaded(replace(network, layers=(replace(conv, requantisation=rule), pool)))
    first, second = network.layers
    plans = (
        layer_plan(stage_of(first), Unroll(1, 3, 3, 1, lut_lanes), 1, PLAIN, 1),
        layer_plan(stage_of(second), Unroll(2, 2, 2, 1), 1, PLAIN, 1),
    )
    plans = (replace(plans[0], converts_first=(True,) if converts_first else ()), plans[1])
    rows, depths = size_buffers(compose(network, tuple(replace(plan, fifo_depths=(1000,)) for plan in plans)))
    config = compose(network, with_buffers(plans, rows, depths))
    return config, files(config, top="dut")["dut.v"].decode()


@cache
def wrapped_chain(*, runtime: bool = False) -> tuple[WrapperUnit, str]:
    """Return the bus wrapper of `chain`, and the Verilog of both, in which the wrapper is the module ``dut_axi``."""
    config, verilog = chain(runtime=runtime)
    shell = wrapper.shell_of(config)
    return WrapperUnit(shell), f"{verilog}\n{convert(shell.wrapper('dut'), 'dut_axi')['dut_axi.v'].decode()}"


@cache
def residual() -> tuple[AcceleratorConfig, str]:
    """Return an accelerator of two convolutions and a sum of both, and its Verilog, whose top module is ``dut``."""
    rng = np.random.default_rng(0)
    feature_map = FeatureMap(channels=2, height=2, width=3, type=UINT8, zero_point=0, scale=0.5)

    def conv(name: str) -> Conv:
        layer = Conv(
            name=name,
            input=feature_map,
            output=feature_map,
            window=Window(kernel=(1, 1)),
            weights=rng.integers(-9, 9, (2, 2, 1, 1)),
            bias=np.zeros(2, np.int64),
            requantisation=None,
        )
        return replace(layer, requantisation=a_requantisation(rng, layer))

    both = Add(
        name="both",
        input=feature_map,
        more=(feature_map,),
        output=feature_map,
        window=Window(kernel=(1, 1)),
        labels=(Label(0.5, 0),) * 3,
        fused=True,
        low=0,
        high=255,
    )
    edges = ((INPUT,), ("first",), ("second", "first"))
    network = Network(name="dut", layers=(conv("first"), conv("second"), both), edges=edges)
    plans = tuple(layer_plan(stage_of(layer), Unroll(2, 2, 1, 1), 1, PLAIN, 1) for layer in network.layers)
    plans = (replace(plans[0], fifo_depths=(1000, 1000)), *(replace(plan, fifo_depths=(1000,)) for plan in plans[1:]))
    config = compose(network, with_buffers(plans, *size_buffers(compose(network, plans))))
    return config, files(config, top="dut")["dut.v"].decode()


@dataclass(frozen=True)
class Fault:
    """Fault in the Verilog of an engine's component, and the obligation that refutes it.

    Parameters
    ----------
    path, kind : str
        Path of the component, and kind of its obligation.
    old, new : str
        Text of the Verilog, and faulty text.
    module : str
        Module with the text; by default, the component's.
    statement : str
        Part of the obligation's statement, where a component has several of the kind.
    engine : EngineConfig
    """

    path: str
    kind: str
    old: str
    new: str
    module: str = ""
    statement: str = ""
    engine: EngineConfig = SMALL

    def results(self) -> set[str]:
        """Prove the obligations that the fault concerns, and return their results."""
        sound, found = engine(self.engine)
        affected = [each for each in found[self.path] if each.kind == self.kind and self.statement in each.statement]
        verilog = with_fault(sound, self.module or affected[0].module, self.old, self.new)
        return {proof.verdict.result for proof in proved(affected, verilog).values()}


@cache
def engine(config: EngineConfig) -> tuple[str, dict[str, list[Obligation]]]:
    """Return the Verilog of an engine, and its obligations by the path of their component."""
    verilog = engine_files(config)[f"{ENGINE}.v"].decode()
    found = defaultdict(list)
    for obligation in catalogue.obligations(EngineDesign(engine=config), ENGINE, verilog):
        found[obligation.path].append(obligation)
    return verilog, dict(found)


def kinds_of(found: dict[str, list[Obligation]]) -> dict[str, set[str]]:
    """Return the kinds of each component's obligations, without ``reset``, by its path."""
    return {path: {obligation.kind for obligation in each} - {"reset"} for path, each in found.items()}
