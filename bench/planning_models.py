"""Models of published architectures at full depth, with random weights, whose planning `bench/planning.py` measures.

Usage: python bench/planning_models.py NAME FILE.onnx

ONNX Runtime quantises them. `NETWORKS` has a function for each, and the size of its input.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rtl_tests" / "support"))

from exporters import Writer
from onnx_writing import Frames


def unet(w: Writer) -> onnx.ModelProto:
    """Write a U-Net of six convolutions with 8 to 32 channels, two pools and two upsamplings; return the model."""
    first = w.block("x", 8)
    second = w.block(w.pool(first), 16)
    x = w.block(w.concat(w.resize(w.block(w.pool(second), 32)), second), 16)
    return w.model(w.conv(w.block(w.concat(w.resize(x), first), 8), 1, 1))


def three_layers(w: Writer) -> onnx.ModelProto:
    return w.model(w.conv(w.block(w.block("x", 8), 8), 1))


def gated(w: Writer, x: str, inner: int, act: str, gate: str) -> str:
    """Add a squeeze-and-excitation block with ``inner`` channels, and return its tensor."""
    squeezed = getattr(w, act)(w.conv(w.node("GlobalAveragePool", x), inner, 1))
    return w.node("Mul", x, w.node(gate, w.conv(squeezed, w.channels[x], 1)))


def efficientnet_b0(w: Writer) -> onnx.ModelProto:
    x = w.block("x", 32, 3, 2, act="silu")
    stages = (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3)
    for expansion, kernel, stride, channels, count in (*stages, (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)):
        for index in range(count):
            before, step = w.channels[x], 1 if index else stride
            wide = before * expansion
            y = w.block(x, wide, 1, act="silu") if expansion > 1 else x
            y = w.block(y, wide, kernel, step, act="silu", group=wide)
            y = w.conv(gated(w, y, before // 4, "silu", "Sigmoid"), channels, 1)
            x = w.node("Add", x, y) if step == 1 and before == channels else y
    return w.classified(w.block(x, 1280, 1, act="silu"), 1000)


def regnet_y_400mf(w: Writer) -> onnx.ModelProto:
    x = w.block("x", 32, 3, 2)
    for channels, count in ((48, 1), (104, 3), (208, 6), (440, 6)):
        for index in range(count):
            step = 1 if index else 2
            y = w.block(w.block(x, channels, 1), channels, 3, step, group=channels // 8)
            y = w.conv(gated(w, y, w.channels[x] // 4, "relu", "Sigmoid"), channels, 1)
            x = w.relu(w.node("Add", x if index else w.conv(x, channels, 1, step), y))
    return w.classified(x, 1000)


def squeezenet1_1(w: Writer) -> onnx.ModelProto:
    x = w.block("x", 64, 3, 2, pad=[0] * 4)
    for fires in (((16, 64),) * 2, ((32, 128),) * 2, ((48, 192), (48, 192), (64, 256), (64, 256))):
        x = w.pool(x, 3, 2)
        for squeezed, expanded in fires:
            x = w.block(x, squeezed, 1)
            x = w.concat(w.block(x, expanded, 1), w.block(x, expanded, 3))
    return w.model(w.node("Flatten", w.node("GlobalAveragePool", w.block(x, 1000, 1))))


def deeplabv3(w: Writer) -> onnx.ModelProto:
    """Write DeepLabV3 up to its head: a ResNet-50 whose last two stages are dilated; return the model."""
    x = w.pool(w.block("x", 64, 7, 2), 3, 2, 1)
    for channels, count, stride, dilation in ((64, 3, 1, 1), (128, 4, 2, 1), (256, 6, 1, 2), (512, 3, 1, 4)):
        for index in range(count):
            step, apart = (1, dilation) if index else (stride, max(dilation // 2, 1))
            y = w.conv(w.block(w.block(x, channels, 1), channels, 3, step, dilation=apart), 4 * channels, 1)
            x = w.relu(w.node("Add", x if index else w.conv(x, 4 * channels, 1, step), y))
    return w.model(x)


def cross_stage(w: Writer, x: str, channels: int, count: int = 1, *, adds: bool = True) -> str:
    """Add a C2f block of YOLOv8: a split, ``count`` bottlenecks, and a concatenation of all; return its tensor."""
    parts = w.split(w.block(x, channels, 1, act="silu"), channels // 2, channels // 2)
    for _ in range(count):
        y = w.block(w.block(parts[-1], channels // 2, act="silu"), channels // 2, act="silu")
        parts.append(w.node("Add", parts[-1], y) if adds else y)
    return w.block(w.concat(*parts), channels, 1, act="silu")


def yolov8n(w: Writer) -> onnx.ModelProto:
    """Write YOLOv8n up to its head; return the model with three outputs."""

    def halved(x: str, channels: int) -> str:
        return w.block(x, channels, 3, 2, act="silu")

    x = cross_stage(w, halved(halved("x", 16), 32), 32)
    third = cross_stage(w, halved(x, 64), 64, 2)
    fourth = cross_stage(w, halved(third, 128), 128, 2)
    pooled = [w.block(cross_stage(w, halved(fourth, 256), 256), 128, 1, act="silu")]
    for _ in range(3):
        pooled.append(w.pool(pooled[-1], 5, 1, 2))
    fifth = w.block(w.concat(*pooled), 256, 1, act="silu")
    upper = cross_stage(w, w.concat(w.resize(fifth), fourth), 128, adds=False)
    out = [cross_stage(w, w.concat(w.resize(upper), third), 64, adds=False)]
    for below, channels in ((upper, 128), (fifth, 256)):
        joined = w.concat(halved(out[-1], w.channels[out[-1]]), below)
        out.append(cross_stage(w, joined, channels, adds=False))
    return w.model(*out)


NETWORKS: dict[str, tuple[Callable[[Writer], onnx.ModelProto], tuple[int, int]]] = {
    "unet": (unet, (512, 512)),
    "three_layers": (three_layers, (1080, 1920)),
    "efficientnet_b0": (efficientnet_b0, (96, 96)),
    "regnet_y_400mf": (regnet_y_400mf, (96, 96)),
    "squeezenet1_1": (squeezenet1_1, (96, 96)),
    "deeplabv3": (deeplabv3, (320, 320)),
    "yolov8n": (yolov8n, (320, 320)),
}


def write(name: str, file: Path) -> None:
    """Write a network of `NETWORKS`, quantised to 8 bits from one random frame, into an ONNX file."""
    make, size = NETWORKS[name]
    writer = Writer(name, (1, 3, *size))
    model = make(writer)
    with tempfile.TemporaryDirectory() as folder:
        source, prepared = (str(Path(folder) / each) for each in ("float.onnx", "prepared.onnx"))
        onnx.save(model, source)
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            str(file),
            Frames(writer.frames(1)),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            extra_options={"ForceQuantizeNoInputCheck": True},
        )


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
