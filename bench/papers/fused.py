"""Published against computed: the figures of Alwani's thesis (T) and of DeCoILFNet (D) beside hwgen's.

`rows` computes every figure anew from the models in `hwgen.explore` and `papers.engines`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache

from hwgen.explore import fusion, pyramid
from hwgen.explore.fronts import WORD_BYTES
from hwgen.explore.fusion import depth_multipliers
from hwgen.explore.published import DEPTH_GROUPS
from hwgen.network import shapes
from hwgen.network.ops import Op
from hwgen.plan.cuts import Span, text
from papers import engines, thesis
from papers.rows import Figure, Row


@cache
def _layers(name: str) -> tuple[Op, ...]:
    return shapes.load(name).layers


def _kb(words: int) -> Fraction:
    return Fraction(words * WORD_BYTES, 1024)


def _mb(words: int) -> Fraction:
    """MB of T's section 4.2: 1,000 KB."""
    return Fraction(words * WORD_BYTES, 1024 * 1000)


def _mib(words: int) -> Fraction:
    return Fraction(words * WORD_BYTES, 1 << 20)


def _ms(cycles: int) -> Fraction:
    return Fraction(cycles, 1000 * engines.D_CLOCK_MHZ)


def _text(value: Fraction, digits: int) -> str:
    return f"{float(value):,.{digits}f}"


def rows() -> list[Row]:
    """Every comparison, in the papers' order."""
    return [*_alwani(), *_alwani_engines(), *_decoilfnet()]


def _alwani() -> list[Row]:
    vgg, vgg11, alexnet = _layers("vgg19"), _layers("vgg19:11"), _layers("alexnet-set")
    first, second = vgg[0], vgg[1]
    bytes_ = tuple(
        words * WORD_BYTES for words in (first.input_words, first.weight_count, first.output_words, second.weight_count)
    )
    two = pyramid.recomputation(alexnet)
    all21 = pyramid.recomputation(vgg)
    saved = pyramid.map_traffic([[layer] for layer in alexnet]) - pyramid.map_traffic([alexnet])
    conv2 = alexnet[2]
    top, left, bottom, right = conv2.window.padding
    padded = conv2.channels * (conv2.height + top + bottom) * (conv2.width + left + right)
    # The rows below count conv2's input once written and once read, like every other map between.
    saved_padded = 2 * (alexnet[0].output_words + padded + alexnet[2].output_words)
    implementation = thesis.implementation_words(alexnet)
    reuse21 = pyramid.reuse_words(vgg)
    front = fusion.storage_traffic(vgg11)
    a, c = front[0], front[-1]
    b = next(point for point in front if point.storage_words == 59_392)
    share = Fraction(two.extra_multiplications * 100, two.extra_multiplications + two.multiplications)
    share21 = Fraction(all21.extra_multiplications * 100, all21.extra_multiplications + all21.multiplications)
    maps = {
        name: (_merged(_layers(name)), sum(layer.weight_count for layer in _layers(name)))
        for name in ("alexnet", "vgg19")
    }
    part = {name: Fraction(moved * 100, moved + weights) for name, (moved, weights) in maps.items()}
    return [
        Row(
            where="T 3.1",
            published="feature maps 25 % of AlexNet's traffic",
            computed=f"{_text(part['alexnet'], 1)} %",
            integers=maps["alexnet"],
            verdict="no",
            note="maps and weights, pools merged into convolutions",
        ),
        Row(
            where="T 3.1",
            published="feature maps > 50 % of VGG-E's traffic",
            computed=f"{_text(part['vgg19'], 1)} %",
            integers=maps["vgg19"],
            verdict="exact",
            note="maps and weights, pools merged into convolutions",
        ),
        Row(
            where="T Fig. 3.1",
            published="0.6 MB, 7 KB, 12.8 MB, 147 KB",
            computed=", ".join(f"{value:,}" for value in bytes_) + " B",
            integers=bytes_,
            verdict="exact",
            figures=(
                Figure("0.6", Fraction(bytes_[0], 10**6)),
                Figure("7", Fraction(bytes_[1], 1000)),
                Figure("12.8", Fraction(bytes_[2], 10**6), "cut"),
                Figure("147", Fraction(bytes_[3], 1000)),
            ),
            note="decimal units; 12.845 is cut",
        ),
        Row(
            where="T 3.2.1",
            published="AlexNet, two layers: 678 million more multiplications",
            computed=f"{two.extra_multiplications:,}",
            integers=(two.multiplications, two.extra_multiplications),
            verdict="exact",
            figures=(Figure("678", Fraction(two.extra_multiplications, 10**6), "cut"),),
            note="one of AlexNet's two channel groups; values in the padding are not computed; cut",
        ),
        Row(
            where="T 3.2.1",
            published="668 million more additions",
            computed=f"{two.extra_additions:,}",
            integers=(two.extra_additions,),
            verdict="exact",
            figures=(Figure("668", Fraction(two.extra_additions, 10**6), "cut"),),
            note="K*K - 1 additions for K*K multiplications; cut",
        ),
        Row(
            where="T 3.2.1",
            published="an 80.46 % increase",
            computed=f"{_text(share, 3)} %",
            integers=(two.extra_multiplications, two.extra_multiplications + two.multiplications),
            verdict="exact",
            figures=(Figure("80.46", share),),
            note="share of all multiplications; the increase is "
            f"{_text(Fraction(two.extra_multiplications * 100, two.multiplications), 1)} %",
        ),
        Row(
            where="T 3.2.1",
            published="55.86 KB for reuse",
            computed=f"{_text(_kb(implementation), 3)} KB",
            integers=(implementation,),
            verdict="fit",
            note="counted as in the thesis's implementation (padded widths, without the group's own input); "
            "55.86 is probably a misprint of 55.88",
        ),
        Row(
            where="T 3.4.5",
            published="55.88 KB for reuse",
            computed=f"{_text(_kb(implementation), 3)} KB",
            integers=(implementation, pyramid.reuse_words(alexnet)),
            verdict="fit",
            figures=(Figure("55.88", _kb(implementation)),),
            note=f"likewise; counted as in the thesis's tool, {_text(_kb(pyramid.reuse_words(alexnet)), 2)} KB",
        ),
        Row(
            where="T 3.2.1",
            published="VGG-E: 470 million more multiplications",
            computed=f"{all21.extra_multiplications:,}",
            integers=(all21.multiplications, all21.extra_multiplications),
            verdict="exact",
            figures=(Figure("470", Fraction(all21.extra_multiplications, 10**9), "cut"),),
            note="billion, not million; 21 layers, not 19; cut",
        ),
        Row(
            where="T 3.2.1",
            published="418 million more additions",
            computed=f"{all21.extra_additions:,}",
            integers=(all21.extra_additions,),
            verdict="exact",
            figures=(Figure("418", Fraction(all21.extra_additions, 10**9), "cut"),),
            note="billion; cut",
        ),
        Row(
            where="T 3.2.1",
            published="a 95 % increase",
            computed=f"{_text(share21, 2)} %",
            integers=(all21.extra_multiplications, all21.extra_multiplications + all21.multiplications),
            verdict="no",
            note="a share; the increase is "
            f"{_text(Fraction(all21.extra_multiplications, all21.multiplications), 1)} times the base",
        ),
        Row(
            where="T 3.2.1",
            published="VGG-E: 1.4 MB for reuse",
            computed=f"{_text(_mib(reuse21), 3)} MB",
            integers=(reuse21,),
            verdict="exact",
            figures=(Figure("1.4", _mib(reuse21)),),
        ),
        Row(
            where="T 3.4.5",
            published="saves 2.08 MB",
            computed=f"{_text(_mib(saved), 4)} MB",
            integers=(saved,),
            verdict="exact",
            figures=(Figure("2.08", _mib(saved), "cut"),),
            note="maps between the layers, written and read; one channel group; cut",
        ),
        Row(
            where="T ch. 1",
            published="saves 2.17 MB",
            computed=f"{_text(_mib(saved_padded), 4)} MB",
            integers=(saved_padded,),
            verdict="fit",
            figures=(Figure("2.17", _mib(saved_padded)),),
            note="the same sum, with a 31 x 31 input of conv2",
        ),
        Row(
            where="T 4.2",
            published="1024 and 128 groupings",
            computed=f"{2 ** (len(vgg11) - 1)} and {2 ** (len(_layers('alexnet')) - 1)}",
            integers=(2 ** (len(vgg11) - 1), 2 ** (len(_layers("alexnet")) - 1)),
            verdict="exact",
            note="11 and 8 layers",
        ),
        Row(
            where="T Fig. 4.1 A",
            published="least storage (no number)",
            computed=f"{_text(_kb(a.storage_words), 2)} KB, {_text(_mb(a.traffic_words), 3)} MB",
            integers=(a.storage_words, a.traffic_words),
            verdict="exact",
            note=f"{_text(_kb(a.storage_words), 0)} KB, {_text(_mb(a.traffic_words), 1)} MB, which the ratios below "
            "confirm; pools 1 and 2 are fused, pool 3 is not (2 KB)",
        ),
        Row(
            where="T Fig. 4.1 B",
            published="232 KB, 17.1 MB",
            computed=f"{_text(_kb(b.storage_words), 2)} KB, {_text(_mb(b.traffic_words), 3)} MB",
            integers=(b.storage_words, b.traffic_words),
            verdict="exact",
            figures=(Figure("232", _kb(b.storage_words)), Figure("17.1", _mb(b.traffic_words))),
        ),
        Row(
            where="T Fig. 4.1 C",
            published="701 KB, 1.37 MB",
            computed=f"{_text(_kb(c.storage_words), 2)} KB, {_text(_mb(c.traffic_words), 4)} MB",
            integers=(c.storage_words, c.traffic_words),
            verdict="exact",
            figures=(Figure("701", _kb(c.storage_words)), Figure("1.37", _mb(c.traffic_words))),
        ),
        Row(
            where="T 4.2",
            published="A to C: 53.6x less traffic, 6.2x the storage",
            computed=f"{_text(Fraction(a.traffic_words, c.traffic_words), 3)}, "
            f"{_text(Fraction(c.storage_words, a.storage_words), 3)}",
            integers=(a.traffic_words, c.traffic_words, a.storage_words, c.storage_words),
            verdict="exact",
            figures=(
                Figure("53.6", Fraction(a.traffic_words, c.traffic_words)),
                Figure("6.2", Fraction(c.storage_words, a.storage_words)),
            ),
        ),
        Row(
            where="T 4.2",
            published="A to B: 4.31x less traffic, 2.04x the storage",
            computed=f"{_text(Fraction(a.traffic_words, b.traffic_words), 4)}, "
            f"{_text(Fraction(b.storage_words, a.storage_words), 4)}",
            integers=(a.traffic_words, b.traffic_words, a.storage_words, b.storage_words),
            verdict="exact",
            figures=(
                Figure("4.31", Fraction(a.traffic_words, b.traffic_words)),
                Figure("2.04", Fraction(b.storage_words, a.storage_words)),
            ),
        ),
    ]


def _alwani_engines() -> list[Row]:
    layers = _layers("alexnet-set")
    conv1, conv2 = layers[0], layers[2]
    ctc1, ctc2, fused = engines.layer_ctc(conv1, 64, 7), engines.layer_ctc(conv2, 64, 7), engines.fused_ctc(layers)
    dsp1, dsp2 = engines.float_dsp(48, 3), engines.float_dsp(64, 5)
    floor = -(-5 * engines.pyramid_macs(layers) // 3600)
    front = alexnet_cycles()
    fits = next(point for point in reversed(front) if point.dsp <= 3600)
    close = [point for point in front if point.cycles in (1210, 1200)]
    return [
        Row(
            where="T 3.4.5",
            published="operations per byte, layer by layer: 83.08 and 162.61",
            computed=f"{_text(ctc1, 4)} and {_text(ctc2, 4)}",
            integers=(ctc1.numerator, ctc1.denominator, ctc2.numerator, ctc2.denominator),
            verdict="exact",
            figures=(Figure("83.08", ctc1), Figure("162.61", ctc2, "cut")),
            note="Tm = 64, Tn = 7; 48 channels padded to 49, conv2's input read twice; the second is cut",
        ),
        Row(
            where="T 3.4.5",
            published="operations per byte, fused: 261.19",
            computed=_text(fused, 4),
            integers=(fused.numerator, fused.denominator),
            verdict="fit",
            figures=(Figure("261.19", fused, "cut"),),
            note="with bias, ReLU and 9 operations per pooled output; "
            f"{_text(fused * 2 * engines.pyramid_macs(layers) / engines.operations(layers), 2)} with MACs only; "
            "cut",
        ),
        Row(
            where="T 3.4.5",
            published="1.61x (chapter 1: 1.62x) more operations per byte",
            computed=_text(fused / ctc2, 3),
            integers=((fused / ctc2).numerator, (fused / ctc2).denominator),
            verdict="exact",
            figures=(Figure("1.61", fused / ctc2),),
            note="1.62 is a misprint",
        ),
        Row(
            where="T Tab. 3.3",
            published="726, 1610, 2336 DSP (conv1, conv2, both); baseline 2240",
            computed=f"{dsp1}, {dsp2}, {dsp1 + dsp2}; {5 * 64 * 7}",
            integers=(dsp1, dsp2, dsp1 + dsp2, 5 * 64 * 7),
            verdict="exact",
            note="the text and Tab. 3.1 say 2332: a misprint",
        ),
        Row(
            where="T Fig. 4.4",
            published="about 1200 cycles at about 3600 DSP",
            computed=f"{fits.cycles:,} at {fits.dsp:,}; "
            + ", ".join(f"{point.cycles:,} at {point.dsp:,}" for point in close[::-1] if point),
            integers=(floor, fits.cycles, fits.dsp, *(value for point in close for value in (point.cycles, point.dsp))),
            verdict="no",
            note=f"3,600 DSP need at least {floor:,} cycles, whatever the factors",
        ),
    ]


def alexnet_cycles() -> list[fusion.CyclesPoint]:
    """T's Fig. 4.4: all unrollings of AlexNet's first two convolutions, cycles of a pyramid inside the map."""
    layers = _layers("alexnet-set")
    return fusion.dsp_cycles(
        [
            engines.pyramid_choices(layer, new)
            for layer, new in zip(layers, engines.new_outputs(layers), strict=True)
            if layer.weight_count
        ]
    )


_D_TABLE_2 = (
    *((114.54, 26.76), (736.78, 27.01), (769.37, 27.06), (1011.71, 28.08)),
    *((1282.42, 41.46), (1442.47, 41.49), (1637.43, 41.95)),
)
"""Milliseconds of Caffe on a CPU and of D."""


def _decoilfnet() -> list[Row]:
    layers, four = _layers("vgg16:7"), _layers("decoilfnet-four")
    latencies = tuple(engines.convolution_latency(3, depth) for depth in (1, 3, 64, 128))
    multipliers = decoilfnet_multipliers(layers)
    dsp = sum(multipliers)
    cycles = engines.prefix_cycles(layers)
    zhang = engines.zhang_cycles(layers, 64, 9)
    conv3 = pyramid.map_traffic([layers[:6], layers[6:]])
    whole = pyramid.map_traffic([layers])
    one_sided = engines.one_sided_traffic(layers)
    result = [
        Row(
            where="D III-C",
            published="45 and 63 cycles of latency (depth 1 and 3)",
            computed=", ".join(map(str, latencies[:2])),
            integers=latencies,
            verdict="exact",
            note=f"depth 64: {latencies[2]}, depth 128: {latencies[3]}",
        ),
        Row(
            where="D Tab. I",
            published="605 DSP",
            computed=f"{sum(multipliers[:2])} multipliers",
            integers=(sum(multipliers[:2]),),
            verdict="no",
            note="two more, unexplained, and not in Tab. IV",
        ),
        Row(
            where="D Tab. IV",
            published="2907 DSP",
            computed=" + ".join(str(value) for value in multipliers if value) + f" = {dsp}",
            integers=(dsp, *(value for value in multipliers if value)),
            verdict="exact",
            note="conv2_2 in two depth groups",
        ),
    ]
    printed = {
        "conv1_1": ("26.764", "exact"),
        "conv1_2": ("27.01", "fit"),
        "pool1": ("27.06", "exact"),
        "conv2_1": ("28.08", "fit"),
        "conv2_2": ("41.46", "fit"),
        "pool2": ("41.49", "fit"),
        "conv3_1": ("41.95", "fit"),
    }
    for layer, count in zip(layers, cycles, strict=True):
        text, verdict = printed[layer.name]
        result.append(_time("D Tab. II", layer.name, text, count, verdict))
    result[-4] = _noted(result[-4], "the worst of the fits; 28.02 if conv2_2's pipeline fill is counted here")
    step = cycles[4] - cycles[3] - 2 * layers[4].width * engines.D_PERIODS["conv2_2"]
    result[-3] = _noted(result[-3], f"the step, {_text(_ms(step), 2)} ms, is exact: {step:,} cycles of stall")
    for layer, count, (text, verdict) in zip(
        four,
        engines.prefix_cycles(four),
        (("26.764", "exact"), ("27.01", "fit"), ("27.24", "exact"), ("27.48", "exact")),
        strict=True,
    ):
        result.append(_time("D Tab. III", layer.name, text, count, verdict))
    result += [
        Row(
            where="D Tab. IV",
            published="5034k cycles",
            computed=f"{cycles[-1]:,}",
            integers=(cycles[-1],),
            verdict="fit",
            note=f"{_percent(cycles[-1], Fraction(5_034_000))}; as Tab. II's 41.95 ms",
        ),
        Row(
            where="D Tab. IV",
            published="Optimized: 10951k cycles, 2880 DSP",
            computed=f"{zhang:,}; {5 * 64 * 9:,}",
            integers=(zhang, 5 * 64 * 9),
            verdict="exact",
            figures=(Figure("10951", Fraction(zhang, 1000)),),
            note="Tm = 64, Tn = 9",
        ),
        Row(
            where="D Tab. IV",
            published="Fused: 11655k cycles, 2987 DSP",
            computed="",
            integers=(),
            verdict="no",
            note="copied from the MICRO 2016 paper",
        ),
        Row(
            where="D Tab. IV",
            published="Fused: 3.64 MB",
            computed=f"{_text(_mib(whole), 4)} MB",
            integers=(whole,),
            verdict="exact",
            figures=(Figure("3.64", _mib(whole)),),
            note="input and output of all seven layers",
        ),
        Row(
            where="D Tab. IV",
            published="6.69 MB",
            computed=f"{_text(_mib(conv3), 4)} MB",
            integers=(conv3,),
            verdict="exact",
            figures=(Figure("6.69", _mib(conv3), "cut"),),
            note="conv1_1 to pool2, then conv3_1 separately, cut; but Tab. II fuses conv3_1",
        ),
        Row(
            where="D Tab. IV",
            published="Optimized: 77.14 MB",
            computed=f"{_text(_mib(_merged(layers)), 2)}, {_text(_mib(_single(layers)), 2)} MB",
            integers=(_merged(layers), _single(layers)),
            verdict="no",
            note="pools merged into convolutions; every layer separate. The baseline's tiles are not printed",
        ),
        Row(
            where="D Fig. 7 A",
            published="23.54 MB",
            computed=f"{_text(_mib(one_sided), 4)} MB",
            integers=(one_sided,),
            verdict="exact",
            figures=(Figure("23.54", _mib(one_sided)),),
            note="inputs of the five convolutions, read once, without writes",
        ),
        Row(
            where="D abstract",
            published="11.5x less traffic",
            computed=_text(Fraction(7714, 669), 2),
            integers=(7714, 669),
            verdict="exact",
            figures=(Figure("11.5", Fraction(7714, 669)),),
            note="77.14 MB / 6.69 MB",
        ),
        Row(
            where="D conclusion",
            published="42x less traffic",
            computed=_text(_mib(one_sided) / _mib(layers[0].input_words), 1),
            integers=(one_sided, layers[0].input_words),
            verdict="no",
            note="our guess: 23.54 MB divided by the input map",
        ),
        Row(
            where="D Tab. IV",
            published="2.6x and 2.78x faster, more than 2x in cycles",
            computed="{:.3f}, {:.3f}; {:.3f}, {:.3f}".format(
                *(other * 120 / 503_400 for other in (10951, 11655)), *(other / 5034 for other in (10951, 11655))
            ),
            integers=(10951 * 120, 5034 * 100, 11655 * 120),
            verdict="exact",
            figures=(
                Figure("2.6", Fraction(10951 * 120, 5034 * 100)),
                Figure("2.78", Fraction(11655 * 120, 5034 * 100)),
            ),
            note="ratios of printed figures",
        ),
        Row(
            where="D",
            published="30x faster than the CPU",
            computed=f"{sum(cpu / own for cpu, own in _D_TABLE_2) / len(_D_TABLE_2):.2f}",
            integers=(),
            verdict="no",
            note="the mean of Tab. II; its last row is 39.03",
        ),
    ]
    return result


def _time(where: str, layer: str, printed: str, cycles: int, verdict: str) -> Row:
    exact = verdict == "exact"
    return Row(
        where=where,
        published=f"up to {layer}: {printed} ms",
        computed=f"{_text(_ms(cycles), 3)} ms",
        integers=(cycles,),
        verdict=verdict,
        figures=(Figure(printed, _ms(cycles)),) if exact else (),
        note="" if exact else _percent(_ms(cycles), Fraction(printed)),
    )


def _noted(row: Row, note: str) -> Row:
    return replace(row, note=f"{row.note}; {note}")


def _percent(computed: Fraction | int, printed: Fraction) -> str:
    return f"{float((computed - printed) / printed * 100):+.2f} %"


def _single(layers: Sequence[Op]) -> int:
    return pyramid.map_traffic([[layer] for layer in layers])


def _merged(layers: Sequence[Op]) -> int:
    """Traffic of maps layer by layer, each pool merged into the convolution before it."""
    groups: list[list[Op]] = []
    for layer in layers:
        if layer.weight_count or not groups:
            groups.append([])
        groups[-1].append(layer)
    return pyramid.map_traffic(groups)


def decoilfnet_multipliers(layers: Sequence[Op]) -> list[int]:
    """Multipliers of D's build of VGG-16's first layers, 0 for pools."""
    return [depth_multipliers(layer, DEPTH_GROUPS.get(layer.name, 1)) for layer in layers]


def sections() -> list[str]:
    """Return two of the fronts that figures come from, in Markdown."""
    return [*_decoilfnet_section(), "", *_cycles_section()]


def _groups(layers: Sequence[Op], groups: Sequence[Span]) -> str:
    return text([layer.name for layer in layers], groups)


def _decoilfnet_section() -> list[str]:
    layers = _layers("vgg16:7")
    lines = [
        "## DSPs against traffic",
        "",
        "DeCoILFNet, Fig. 7: VGG-16's first seven layers with D's multipliers. Layers of one group run concurrently;",
        "groups run one after another and share the multipliers. Traffic is each group's input and output.",
        "",
        "| DSP | MB | groups |",
        "|--:|--:|---|",
    ]
    for point in fusion.dsp_traffic(layers, decoilfnet_multipliers(layers)):
        lines.append(f"| {point.dsp:,} | {_text(_mib(point.traffic_words), 4)} | {_groups(layers, point.groups)} |")
    return lines


def _cycles_section() -> list[str]:
    lines = [
        "## DSPs against cycles",
        "",
        "Thesis, Fig. 4.4: AlexNet's first two convolutions, one channel group, near the published 1,200 cycles at",
        "3,600 DSP (5 per MAC, no unrolled taps). Cycles are per pyramid (all values that one output tile depends on)",
        "that touches no border.",
        "",
        "| DSP | cycles |",
        "|--:|--:|",
    ]
    lines += [f"| {point.dsp:,} | {point.cycles:,} |" for point in alexnet_cycles() if 3000 <= point.dsp <= 4000]
    return lines
