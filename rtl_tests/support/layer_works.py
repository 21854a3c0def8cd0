"""Works of small layers, without networks, for tests of searches for unroll factors; all their unroll factors."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from hwgen.templates.work import LayerWork, TurnWalk, Unroll


def conv(name, channels, outputs, side, taps=9, input_side=None, groups=1) -> LayerWork:
    return LayerWork(
        name=name,
        channels=channels,
        outputs=outputs,
        groups=groups,
        height=side,
        width=side,
        input_height=input_side or side,
        input_width=input_side or side,
        taps=taps,
        channelwise=False,
    )


def pool(name, channels, side, input_side, taps=4) -> LayerWork:
    return LayerWork(
        name=name,
        channels=channels,
        outputs=channels,
        groups=1,
        height=side,
        width=side,
        input_height=input_side,
        input_width=input_side,
        taps=taps,
        channelwise=True,
        weighted=False,
    )


@st.composite
def works(draw, number: int) -> LayerWork:
    groups = draw(st.sampled_from([1, 1, 2]))
    sides = {name: draw(st.integers(1, 4)) for name in ("height", "width")}
    sides |= {f"input_{name}": draw(st.integers(1, 2 * size + 1)) for name, size in sides.items()}
    common = {"name": f"layer{number}", **sides, "taps": draw(st.sampled_from([1, 4, 5, 6, 9]))}
    common |= {"whole_windows": draw(st.sampled_from([False, False, True]))}
    if draw(st.booleans()):
        channels = draw(st.integers(1, 6))
        weighted = draw(st.booleans())
        return LayerWork(**common, channels=channels, outputs=channels, groups=1, channelwise=True, weighted=weighted)
    channels, outputs = (groups * draw(st.integers(1, 5)) for _ in range(2))
    return LayerWork(**common, channels=channels, outputs=outputs, groups=groups, channelwise=False)


@st.composite
def chains(draw) -> list[LayerWork]:
    """One to three layers, each as wide as the one before leaves it."""
    layers = []
    for number in range(draw(st.integers(1, 3))):
        work = draw(works(number))
        if layers:
            work = replace(work, input_width=layers[-1].width, input_height=layers[-1].height)
        layers.append(work)
    return layers


def every(work: LayerWork, pixels=1) -> list[Unroll]:
    """All factors; but of taps that need as many folds only the least, and all taps where windows are taken whole."""
    groups = 1 if work.channelwise else work.groups
    taps = range(1, work.taps + 1)
    taps = [tk for tk in taps if not any(o < tk and -(-work.taps // o) == -(-work.taps // tk) for o in taps)]
    return [
        Unroll(tn, tm, tk, tp)
        for tk in (taps[-1:] if work.whole_windows else taps)
        for tn in range(1, work.channels // groups + 1)
        for tm in ([tn] if work.channelwise else range(1, work.outputs // groups + 1))
        for tp in range(1, min(pixels, work.width) + 1)
    ]


@st.composite
def joined(draw) -> list[LayerWork]:
    """Two layers, one behind the other, and a third that takes both outputs step by step."""
    channels, taps = draw(st.integers(1, 3)), draw(st.tuples(*[st.sampled_from([1, 3])] * 2))
    size = {"height": draw(st.integers(1, 2)), "width": draw(st.integers(1, 5)), "channels": channels}
    size |= {"outputs": channels, "input_height": size["height"], "input_width": size["width"], "groups": 1}
    first, second = (LayerWork(name=f"c{n}", **size, taps=taps[n], channelwise=draw(st.booleans())) for n in (0, 1))
    end = LayerWork(
        **{**size, "name": "end", "taps": 1, "channelwise": True, "weighted": False, "back": (1, 2), "in_step": 2}
    )
    return [first, second, end]


def module(branches: int, width: int) -> list[LayerWork]:
    """Branches of two convolutions each as in an inception module: all first ones, all second ones, a join."""
    size = {"height": 1, "width": width, "input_height": 1, "input_width": width, "groups": 1, "channelwise": False}
    layers = [LayerWork(name="in", **size, channels=2, outputs=2, taps=1)]
    layers += [
        LayerWork(name=f"first{n}", **size, channels=2, outputs=1 + n % 3, taps=1 + n, back=(1 + n,))
        for n in range(branches)
    ]
    layers += [
        LayerWork(name=f"second{n}", **size, channels=1 + n % 3, outputs=2, taps=3 - n % 3, back=(branches,))
        for n in range(branches)
    ]
    join = {"channels": 2 * branches, "outputs": 2 * branches, "channelwise": True, "taps": 1, "weighted": False}
    back = tuple(range(branches, 0, -1))
    return [
        *layers,
        LayerWork(name="join", **{**size, **join}, back=back, in_step=branches, walk=TurnWalk((2,) * branches)),
    ]
