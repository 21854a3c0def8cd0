"""Chains of layers as shapes, for tests of planning: random small ones, and those of published networks."""

from hypothesis import strategies as st

from hwgen.network.maps import Window
from hwgen.network.ops import KINDS, Conv, MaxPool


@st.composite
def chains(draw, most=6):
    """One to ``most`` layers: groups, strides, oblong and dilated windows, and padding that may hold a whole window."""
    channels, height, width = draw(st.integers(1, 4)), draw(st.integers(4, 20)), draw(st.integers(4, 20))
    layers = []
    for index in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(["conv", "conv", "maxpool"]))
        kernel = tuple(draw(st.integers(1, min(4, size))) for size in (height, width))
        dilation = tuple(draw(_dilations(taps, size)) for taps, size in zip(kernel, (height, width), strict=True))
        stride = tuple(draw(st.integers(1, 3)) for _ in kernel)
        padding = tuple(draw(st.integers(0, kernel[axis % 2])) for axis in range(4))
        groups = draw(st.sampled_from([1, 1, channels])) if kind == "conv" else 1
        outputs = groups * draw(st.integers(1, 3)) if kind == "conv" else channels
        layer = KINDS[kind].shaped(
            name=f"{kind}{index}",
            channels=channels,
            outputs=outputs,
            height=height,
            width=width,
            window=Window(kernel=kernel, stride=stride, padding=padding, dilation=dilation),
            groups=groups,
        )
        layers.append(layer)
        channels, height, width = outputs, layer.output_height, layer.output_width
    return tuple(layers)


def _dilations(taps, size):
    """Mostly 1; never so much that no window fits."""
    return st.sampled_from([1, 1, *(d for d in (2, 3, 4) if (taps - 1) * d < size)])


def conv(name, channels, outputs, size, kernel=3, stride=1, padding=0, groups=1, dilation=1):
    """Return a convolution with a square map and a square kernel."""
    return Conv.shaped(
        name=name,
        channels=channels,
        outputs=outputs,
        height=size,
        width=size,
        window=Window(kernel=(kernel,) * 2, stride=(stride,) * 2, padding=(padding,) * 4, dilation=(dilation,) * 2),
        groups=groups,
    )


def pool(name, channels, size, kernel=2, stride=2):
    """Return a maximum pool with a square map and a square kernel, without padding."""
    return MaxPool.shaped(
        name=name,
        channels=channels,
        outputs=channels,
        height=size,
        width=size,
        window=Window(kernel=(kernel,) * 2, stride=(stride,) * 2),
    )


#: Words of the buffer: set, X, W, Y of Table I (Y counted both ways), worked out apart from hwgen.
PEEMEN = {
    32: (31, 175_491_200, 2_768_000, 129_957_600),
    64: (63, 82_166_400, 928_000, 69_310_720),
    128: (127, 24_781_792, 704_000, 69_310_720),
    256: (255, 22_225_504, 560_000, 34_655_360),
    512: (495, 22_225_504, 560_000, 17_327_680),
    1024: (1023, 7_699_296, 320_000, 17_327_680),
    2048: (2030, 7_455_840, 288_000, 8_663_840),
    4096: (4040, 3_180_144, 144_000, 8_663_840),
}


def minimal(points):
    points = set(points)
    return sorted(
        p for p in points if not any(q != p and all(a <= b for a, b in zip(q, p, strict=True)) for q in points)
    )


VGG_11 = [
    *((114, 73.5), (116, 67.228), (117.77, 60.956), (118.3, 42.14), (169.5, 39.004), (171, 23.324)),
    *((228, 20.188), (232, 17.052), (290.34, 10.78), (348, 7.644), (406, 4.508), (701.44, 1.372)),
]


ALEXNET = [
    *((42, 4.335), (57, 3.997), (60, 3.659), (70, 3.49), (72.5, 2.032)),
    *((105, 1.694), (114.56, 1.316), (135, 0.978), (257.37, 0.64)),
]
