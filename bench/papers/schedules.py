"""Published against computed: Peemen (P), Cecconi (C) and Yang (Y), for docs/figures/published.md.

`rows` holds what is quick to compute, `tables` shows it in full, and `designed` the memories made to measure, which
take a minute or two.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import factorial

from hwgen.blocking import cecconi, energy, peemen, yang
from hwgen.blocking.priced import PricedBlocking
from hwgen.blocking.problem import Nest, Problem
from hwgen.blocking.search import search
from hwgen.network import shapes
from papers.rows import Figure, Row

LIMIT = 32_768
"""Cecconi's buffer: half of 256 KB, in words of 32 bits."""

CLOCK_MHZ = 150
"""P's clock."""

BANDWIDTH = 37.5e6
"""Accesses a second of the paper's processor bus (section VI-B: 37.5 MB/s, one value of a byte each)."""

TABLE = {
    32: ((1, 3, 1, 1, 1, 5), "n", "0.356", 31),
    64: ((1, 1, 3, 1, 5, 5), "n", "0.176", 63),
    128: ((3, 1, 4, 1, 5, 5), "n", "0.109", 127),
    256: ((3, 2, 5, 1, 5, 5), "n", "0.066", 255),
    512: ((3, 4, 5, 1, 5, 5), "n", "0.046", 495),
    1024: ((7, 4, 9, 1, 5, 5), "n", "0.029", 1023),
    2048: ((7, 8, 10, 1, 5, 5), "n", "0.019", 2030),
    4096: ((14, 8, 20, 1, 5, 5), "n", "0.014", 4040),
}
"""P's Table I as printed: tile (r, q, m, n, k, l), direction, accesses an iteration, size of the working set."""

OTHERS = {
    "FC1": Problem.valid("FC1", 1, 1, 200, 100),
    "FC2": Problem.valid("FC2", 1, 1, 4096, 4096),
    "Pool": Problem(
        name="Pool", X=28, Y=28, C=1, K=1, Fw=2, Fh=2, width=56, height=56, stride=(2, 2), groups=128, weighted=False
    ),
    "LRN": Problem.lrn("LRN", 55, 55, 96),
}
"""Y's Table 4: layers that are no convolutions. Its normalisation states no window: five channels, as in AlexNet."""


@cache
def table_1() -> tuple[peemen.TileSchedule, ...]:
    return tuple(peemen.optimise(peemen.layer(), peemen.MEMORIES))


@cache
def flownets() -> tuple[tuple[Problem, int, int, cecconi.BufferedTile, int], ...]:
    """Return for each layer: words by the printed model, words that its tile moves, best tile, compulsory words."""
    found = []
    for layer in shapes.load("flownets").layers:
        problem = Problem.of(layer)
        _, said, truth = cecconi.printed(problem, LIMIT)
        found.append((problem, round(said), truth, cecconi.optimise(problem, LIMIT), problem.compulsory))
    return tuple(found)


@cache
def _diannao(name: str, pair: bool) -> PricedBlocking:
    return search(yang.layer(name), yang.diannao(), base=yang.CORE, pair=pair)


def rows() -> list[Row]:
    """Every comparison, in the papers' order."""
    return [*_peemen(), *_cecconi(), *_yang()]


def _peemen() -> list[Row]:
    return [*_peemen_accesses(), *_peemen_times()]


def _peemen_accesses() -> list[Row]:
    found, layer = table_1(), peemen.layer()
    rates = [Fraction(schedule.accesses, schedule.iterations) for schedule in found]
    printed = [TABLE[memory][2] for memory in peemen.MEMORIES]
    return [
        Row(
            where="P Tab. I",
            published="set sizes " + ", ".join(str(TABLE[memory][3]) for memory in peemen.MEMORIES),
            computed=", ".join(str(schedule.set_words) for schedule in found),
            integers=tuple(schedule.set_words for schedule in found),
            verdict="exact",
        ),
        Row(
            where="P Tab. I",
            published="accesses per iteration " + ", ".join(printed),
            computed=", ".join(f"{float(rate):.6f}" for rate in rates),
            integers=tuple(schedule.accesses for schedule in found),
            verdict="exact",
            figures=tuple(Figure(text, rate) for text, rate in zip(printed, rates, strict=True)),
            note=f"{layer.macs:,} iterations; two groups of 40 maps; last tiles are smaller",
        ),
        Row(
            where="P Tab. I",
            published="tiles and directions",
            computed="8 of 8 are the best",
            integers=(sum(map(_as_printed, peemen.MEMORIES, found)),),
            verdict="exact",
            note="if sets are smaller than the memory",
        ),
        Row(
            where="P Fig. 11",
            published="accesses of the schedules against buffer size (a graph without numbers)",
            computed="the model's points are Table I's, above",
            integers=(),
            verdict="no",
            note="`hwgen block --paper peemen --plot` draws the model's",
        ),
    ]


def _peemen_times() -> list[Row]:
    layer = peemen.layer()
    scale = layer.macs * 1000 / Fraction(BANDWIDTH)
    times = [Fraction(TABLE[memory][2]) * scale for memory in (32, 64, 4096)]
    iterations = (layer.macs, 80 * 8 * 25 * 174 * 314)
    compute, larger = (
        ", ".join(f"{float(Fraction(count, elements * CLOCK_MHZ * 1000)):.1f}" for elements in (1, 20, 40))
        for count in iterations
    )
    one_pixel = Problem.valid("Fig. 8", 2, 2, 1, 1, 3, 3)
    return [
        Row(
            where="P Tab. II",
            published="transfers 8225, 4066, 323 ms",
            computed=", ".join(f"{float(time):.1f}" for time in times),
            integers=(layer.macs,),
            verdict="exact",
            figures=tuple(Figure(text, time) for text, time in zip(("8225", "4066", "323"), times, strict=True)),
            note="from Table I's rounded accesses, at 37.5 million accesses per second",
        ),
        Row(
            where="P Tab. II",
            published="compute 5828, 291, 146 ms",
            computed=f"{compute}; with 174 x 314 outputs {larger}",
            integers=iterations,
            verdict="fit",
            note="1, 20 and 40 iterations per cycle at 150 MHz; Table I has 173 x 313 outputs, 0.9 % faster",
        ),
        Row(
            where="P Fig. 8",
            published="a 2x2 tile of 3x3 windows spans 16 values, the better one 15",
            computed="16; 4x1 spans 18, 3x1 15",
            integers=(one_pixel.width * one_pixel.height, 6 * 3, 5 * 3),
            verdict="no",
            note="15 is three outputs, not four",
        ),
    ]


def _as_printed(memory: int, schedule: peemen.TileSchedule) -> bool:
    tile, direction, _, _ = TABLE[memory]
    return (tuple(schedule.tile[letter] for letter in "rqmnkl"), schedule.direction) == (tile, direction)


def _cecconi() -> list[Row]:
    layers = shapes.load("flownets").layers
    weights = sum(layer.weight_count + layer.outputs for layer in layers)
    maps = layers[0].input_words + sum(layer.output_words for layer in layers)
    totals = _totals()
    return [
        Row(
            where="C 2.2",
            published="96 MB of weights and biases",
            computed=f"{weights * 4 / 1e6:.2f} MB",
            integers=(weights,),
            verdict="exact",
            figures=(Figure("96", Fraction(weights * 4, 10**6)),),
            note="FlowNetS at 384 x 512; MB of 10^6 B",
        ),
        Row(
            where="C 2.2",
            published="32 MB of maps",
            computed=f"{maps * 4 / (1 << 20):.2f} MB",
            integers=(maps,),
            verdict="fit",
            note="the paper says 'roughly'",
        ),
        Row(
            where="C 4.3",
            published="the optimum (no number)",
            computed=", ".join(f"{total / 1e6:.1f}" for total in totals) + " M words",
            integers=tuple(totals),
            verdict="fit",
            note="printed model; traffic of its tile; best tile of the corrected model; compulsory",
        ),
        Row(
            where="C Tab. 1",
            published="use of the memory, 20 percentages",
            computed="",
            integers=(),
            verdict="no",
            note="for five of them no tile has sizes that divide, whatever a transfer costs",
        ),
        Row(
            where="C abstract",
            published="5x less bandwidth than naive tiles",
            computed="",
            integers=(),
            verdict="no",
            note="the naive tiles are not printed; tiles with the stated use are 1.8 to 17 times worse",
        ),
    ]


def _totals() -> list[int]:
    columns = zip(*((said, truth, tile.words, least) for _, said, truth, tile, least in flownets()), strict=True)
    return [sum(column) for column in columns]


def _weights(found: PricedBlocking) -> float:
    """pJ that the weights take."""
    own = sum(buffer.accesses * buffer.energy for buffer in found.buffers if buffer.operand == "weights")
    return own + found.outermost_energy("weights")


def _yang() -> list[Row]:
    ratios = [_weights(yang.baseline(name)) / _weights(_diannao(name, True)) for name in yang.LAYERS]
    energies = [yang.baseline(name).per_mac / _diannao(name, True).per_mac for name in yang.LAYERS]
    two, four = factorial(5) * factorial(4), factorial(5) * factorial(4) ** 3
    alexnet = shapes.load("alexnet").layers
    macs = sum(layer.macs for layer in alexnet)
    return [
        Row(
            where="Y Tab. 1",
            published="AlexNet's convolutions: 1.9 billion multiply-adds",
            computed=f"{macs / 1e9:.3f} billion",
            integers=(macs,),
            verdict="no",
            note="1.077 billion without the two channel groups; VGG's rows are right",
        ),
        Row(
            where="Y 3.5",
            published="about 3000 strings (loop orders), a million for four levels",
            computed=f"{two:,}; {four:,}",
            integers=(two, four),
            verdict="fit",
            note="the window as one loop: 5! inside, 4! per level",
        ),
        Row(
            where="Y Fig. 5",
            published="kernel energy 2 to 15 times lower",
            computed="Conv1 to Conv5: " + ", ".join(f"{ratio:.1f}" for ratio in ratios),
            integers=tuple(found.top["weights"] for found in map(yang.baseline, yang.LAYERS)),
            verdict="fit",
            note="DianNao's order with blocks of 8 output columns (Conv2: 5, Conv5: 7), which the paper does not state",
        ),
        Row(
            where="Y Fig. 5",
            published="total energy (no number)",
            computed="Conv1 to Conv5: " + ", ".join(f"{ratio:.1f}" for ratio in energies) + " times lower",
            integers=(),
            verdict="fit",
            note="inputs from DRAM in the baseline",
        ),
    ]


def tables() -> list[str]:
    """Cecconi's and DianNao's tables, in Markdown."""
    return [*_flownets_table(), "", *_diannao_table()]


def _flownets_table() -> list[str]:
    lines = [
        "### Cecconi, FlowNetS",
        "",
        "Million words, with two buffers of 32,768 words: the printed model's count for the tile that it chooses; what",
        "the program listed in the paper moves with that tile; the best tile (any order, blocks need not divide); and",
        "every word once.",
        "",
        "| layer | printed model | traffic of its tile | best | compulsory |",
        "|---|--:|--:|--:|--:|",
    ]
    for problem, said, truth, tile, least in flownets():
        words = " | ".join(f"{value / 1e6:.2f}" for value in (said, truth, tile.words, least))
        lines.append(f"| {problem.name} | {words} |")
    return [*lines, "| total | " + " | ".join(f"{total / 1e6:.1f}" for total in _totals()) + " |"]


def _diannao_table() -> list[str]:
    lines = [
        "### Yang, DianNao's buffers",
        "",
        "pJ per MAC with 2, 32 and 2 KB for inputs, weights and outputs: the minimum over all loop orders and all",
        "blocks that divide (proven), with the two kernel loops adjacent (pair) or free (separate). The blocking lists",
        "the extents reached, from the innermost loop.",
        "",
        "| layer | DianNao's order | pair | separate | blocking (separate) |",
        "|---|--:|--:|--:|---|",
    ]
    for name in yang.LAYERS:
        pair, apart = _diannao(name, True), _diannao(name, False)
        energies = f"{yang.baseline(name).per_mac:.1f} | {pair.per_mac:.3f} | {apart.per_mac:.3f}"
        lines.append(f"| {name} | {energies} | `{apart.nest}` |")
    return lines


@dataclass(frozen=True)
class _Designed:
    """Yang's co-designed memories for one layer, and what the best blocking in DianNao's buffers takes.

    ``wide`` and ``narrow``: pJ a multiply-add there, with words of 256, 512 and 256 bits and of 64. ``found``: by bytes
    on chip, and whether whole arrays may live there.
    """

    wide: float
    narrow: float
    found: dict[tuple[int, bool], PricedBlocking]

    def gains(self, limit: int, homed: bool) -> tuple[float, float]:
        taken = self.found[limit, homed].per_mac
        return self.wide / taken, self.narrow / taken


def designed() -> list[str]:
    """Yang's co-designed memories, in Markdown."""
    layers = {name: _designed(name) for name in yang.LAYERS}
    lines = [
        "### Yang, memories made to measure",
        "",
        "pJ per MAC. In parentheses: energy of the best blocking in DianNao's buffers, with words of 256, 512 and 256",
        "bits, and with words of 64 bits, divided by this value. *First touch*: every array comes from DRAM once;",
        "*homed*: whole arrays may stay on chip. The kernel loops are a pair, as in the paper. The minima are proven.",
        "",
        "| layer | 8 MB, first touch | 8 MB, homed | 1 MB, first touch | 1 MB, homed |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, layer in layers.items():
        cells = []
        for key, found in layer.found.items():
            wide, narrow = layer.gains(*key)
            cells.append(f"{found.per_mac:.3f} ({wide:.1f}, {narrow:.1f})")
        assert not any(found.gap for found in layer.found.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, "", *_claims(layers)]


def _designed(name: str) -> _Designed:
    problem = yang.layer(name)
    narrow = search(problem, yang.diannao(64), base=yang.CORE, pair=True).per_mac
    found = {
        (limit, homed): yang.codesign(problem, limit, homed=homed, pair=True)
        for limit in (8 << 20, 1 << 20)
        for homed in (False, True)
    }
    return _Designed(_diannao(name, True).per_mac, narrow, found)


def _claims(layers: dict[str, _Designed]) -> list[str]:
    """Return lines with the paper's claims beside the results of `designed`."""
    small = [layers[name] for name in ("Conv3", "Conv4", "Conv5")]
    least = min(layer.gains(8 << 20, True)[1] for layer in layers.values())
    gained = {name: layer.gains(1 << 20, True)[1] for name, layer in layers.items()}
    some = _range([gained.pop(name) for name in ("Conv3", "Conv4", "Conv5")], 1)
    touched = [layer.found[8 << 20, False] for layer in small]
    gains = _range([layer.gains(8 << 20, False)[0] for layer in small], 1)
    dram = _range([energy.DRAM * sum(found.top.values()) / found.nest.problem.macs for found in touched], 2)
    home = _range([layer.found[8 << 20, True].per_mac for layer in layers.values()], 2)
    touch = _range([found.per_mac for found in touched], 2)
    return [
        "The paper's claims, and when they hold:",
        "",
        f"- *At least 13x at 8 MB* (Fig. 6): {least:.1f} and more with 64-bit words in DianNao and homed arrays.",
        f"  *About 10x at 1 MB* (Fig. 7): {some} for Conv3 to Conv5 in the same way,",
        f"  {_range(list(gained.values()), 1)} for Conv1 and Conv2. With wide words and first touch, Conv3 to Conv5",
        f"  gain {gains} at 8 MB, as DRAM takes {dram} pJ.",
        f"- *Memory below computation* (Fig. 8): {home} pJ with homed arrays, against an assumed 1 pJ per MAC",
        f"  (the paper gives no value). With first touch, Conv3 to Conv5 take {touch} pJ. Fully",
        f"  connected layers take {energy.DRAM:.0f} pJ per weight unless many images share it.",
        "- *From 20x to less than 1x* and *13x* contradict each other: 20 / 13 is 1.5.",
    ]


def _range(values: list[float], digits: int) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def transfer_ms(accesses_per_iteration: float, iterations: int, bandwidth: float = BANDWIDTH) -> float:
    """Milliseconds that the accesses take (P's Table II, from accesses an iteration as printed)."""
    return accesses_per_iteration * iterations / bandwidth * 1e3


def literal(nest: Nest, inside: int = 0) -> list[tuple[str, int, float]]:
    """Y's Table 2 as printed: operand, words, refetch rate of each buffer, inner to outer.

    Its rates are no counts: partial sums double at every level instead of once, and halos multiply into the levels
    inside (see docs/explanation/blocking.md). It is here to show the difference.
    """
    found = []
    for place in range(inside, len(nest.loops)):
        before, dim, extent = nest.tile(place), nest.loops[place].dim, nest.loops[place].extent
        trips = extent / before[dim]
        halo = (before["X"] + nest.problem.Fw - 1) * (before["Y"] + nest.problem.Fh - 1)
        if dim == "K":
            found.append(("input", halo * before["C"], trips * halo / (before["X"] * before["Y"])))
        elif dim == "C":
            found.append(("output", before["X"] * before["Y"] * before["K"], 2 * trips))
        elif dim in ("X", "Y"):
            words = before["C"] * before["K"] * nest.problem.Fw * nest.problem.Fh
            found.append(("weights", words, trips))
    return found
