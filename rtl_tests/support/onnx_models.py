"""Random quantised ONNX models: chains of convolutions, graphs that branch, and what hwgen computes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx_writing import as_model
from referees import saturates

from hwgen.network import golden
from hwgen.network.onnx.importer import to_network
from hwgen.network.quantise import prepare_inputs


def by_hwgen(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Return the golden model's integers in ONNX's shape, which the caller must flatten after a Flatten."""
    network = to_network(model, "model")
    return golden.run(network, prepare_inputs(network, x))


def last_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` cut behind its last integer tensor, where the hardware ends."""
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    output = cut.graph.output[0]
    producers = {node.output[0]: node for node in cut.graph.node}
    softmax = [node for node in cut.graph.node if node.op_type in ("Softmax", "QLinearSoftmax")]
    name = softmax[0].input[0] if softmax else output.name
    if producers[name].op_type == "DequantizeLinear":
        name = producers[name].input[0]
    last = producers[name]
    zero = last.input[8 if last.op_type == "QGemm" else 2 if last.op_type == "QuantizeLinear" else 7]
    output.name = name
    output.type.tensor_type.elem_type = next(t.data_type for t in cut.graph.initializer if t.name == zero)
    output.type.tensor_type.ClearField("shape")
    keep: list[onnx.NodeProto] = []
    wanted = {name}
    for node in reversed(cut.graph.node):
        if wanted & set(node.output):
            keep.insert(0, node)
            wanted |= set(node.input)
    del cut.graph.node[:]
    cut.graph.node.extend(keep)
    return cut


class Writer:
    """Writes a chain of quantised operators in either format; the first feature map is ``channels x h x w``.

    With ``bits`` 16 (QDQ) feature maps and weights have 8 or 16 bits, the first map 16; the operators are ONNX's or,
    with odd seeds, those of com.microsoft in an older opset. ``tame`` weights have 7 bits, so that two products fit 16.
    """

    def __init__(
        self, seed: int, *, qdq: bool, powers: bool, channels: int = 0, bits: int = 8, tame: bool = False
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.qdq = qdq
        self.tame = tame
        self.bits = bits
        self.domain = "com.microsoft" if bits > 8 and seed % 2 else ""
        self.powers = powers
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shape = (int(self.random.integers(1, 6)), *map(int, self.random.integers(6, 20, 2)))
        self.shape = (channels or self.shape[0], *self.shape[1:])
        self.input_shape = self.shape
        self.count = 0
        self.reference = True
        """Whether onnx.reference is right for this model."""
        self.dtype = self.random.choice([f"uint{bits}", f"int{bits}"])
        self.scale, self.zero = self.quantisation(1 / 60)
        self.tensor = self.add("QuantizeLinear", "input", "image", self.scale, self.zero)

    def constant(self, values: Any) -> str:
        self.count += 1
        name = f"constant{self.count}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def values(self, name: str) -> np.ndarray:
        return numpy_helper.to_array(next(tensor for tensor in self.constants if tensor.name == name))

    def add(self, operator: str, name: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        self.count += 1
        output = f"{name}{self.count}"
        domain = domain or (self.domain if "quanti" in operator.lower() else "")
        self.nodes.append(
            helper.make_node(
                operator, inputs, [output], name=name if name.startswith("layer") else "", domain=domain, **attributes
            )
        )
        return output

    def number(self, about: float) -> np.float32:
        number = about * self.random.uniform(0.6, 1.7)
        return np.float32(2.0 ** np.round(np.log2(number)) if self.powers else number)

    def quantisation(self, about: float) -> tuple[str, str]:
        """Constants: a scale near ``about`` (for 8 bits), and any zero point of the activations' type."""
        limits = np.iinfo(self.dtype)
        about = about * 256 / (limits.max - limits.min + 1)
        middle = self.random.integers(limits.min + 80, limits.max - 80)
        zero = self.random.choice([limits.min, limits.max, middle], p=[0.2, 0.1, 0.7])
        return self.constant(self.number(about)), self.constant(np.array(zero, self.dtype))

    def weights(self, shape: tuple[int, ...], axis: int) -> tuple[str, str, str, int]:
        """Constants: weights, scale and zero point, per tensor or per channel along ``axis``."""
        dtype = self.random.choice(["int8", "uint8"]) if self.qdq or self.dtype == "uint8" else "int8"
        low, high = (
            ((-128, 128) if dtype == "int8" else (0, 256))
            if self.qdq and not self.tame
            else (-64, 65)
            if dtype == "int8"
            else (0, 65)
        )
        if self.bits > 8 and self.random.random() < 0.7:
            dtype, low, high = dtype.replace("8", "16"), low * 256, high * 256
        values = self.random.integers(low, high, shape).astype(dtype)
        channels = shape[axis] if self.random.random() < 0.6 else 1
        scale = np.array([self.number(256 / (high - low) / 100) for _ in range(channels)], np.float32)
        middle = (low + high) // 2
        zero = self.random.integers(middle - 9, middle + 10, channels if self.qdq else 1).astype(dtype)
        if low < 0 and self.random.random() < 0.5:
            zero = np.zeros_like(zero)
        if self.bits > 8 and self.random.random() < 0.3:
            zero = self.random.integers(low, high, channels).astype(dtype)  # then weights take up to 17 bits
        zero = np.broadcast_to(zero, channels)
        if channels == 1:
            scale, zero = scale[0], zero[0]
        return self.constant(values), self.constant(scale), self.constant(zero), axis if channels > 1 else 1

    def dequantised(self) -> str:
        return self.add("DequantizeLinear", "dequantise", self.tensor, self.scale, self.zero)

    def product(
        self, operator: str, name: str, shape: tuple[int, ...], axis: int, output: tuple[int, ...], **attributes: Any
    ) -> None:
        """Add a Conv, Gemm or MatMul with ``shape`` weights, with or without bias and activation."""
        weights, w_scale, w_zero, q_axis = self.weights(shape, axis)
        taps = int(np.prod(shape)) // shape[axis]
        unit = self.values(self.scale) * self.values(w_scale)
        step = np.sqrt(taps) * 60 * (75 if self.qdq else 37)  # the accumulators' usual size
        step *= np.prod([256 ** (self.values(name).dtype.itemsize - 1) for name in (self.zero, weights)])
        bias = self.random.integers(-int(min(step, 2**31)), int(min(step, 2**31)), shape[axis]).astype(np.int32)
        has_bias = operator != "MatMul" and self.random.random() < 0.7
        before = self.scale, self.zero
        if self.bits > 8:
            self.dtype = self.random.choice(["uint8", "int8", "uint16", "int16", "uint16", "int16"])
        after = self.quantisation(float(np.median(unit)) * step / 50)
        if self.qdq:
            x = self.dequantised()
            w = self.add("DequantizeLinear", "weights", weights, w_scale, w_zero, axis=q_axis)
            operands = [x, w]
            if has_bias and self.random.random() < 0.7:
                b_unit = np.broadcast_to(unit, shape[axis]) if unit.size > 1 else unit
                operands.append(
                    self.add("DequantizeLinear", "bias", self.constant(bias), self.constant(b_unit), axis=0)
                )
            elif has_bias:
                operands.append(self.constant((bias * unit).astype(np.float32)))
            value = self.add(operator, name, *operands, **attributes)
            if operator == "MatMul" and self.random.random() < 0.5:
                value = self.add("Add", "plus", value, self.constant((bias * unit).astype(np.float32)))
            activation = self.random.random()
            if activation < 0.3:
                value = self.add("Relu", "relu", value)
            elif activation < 0.6:
                limit = float(self.values(after[0])) * 60.3 * 256 ** (self.values(after[1]).dtype.itemsize - 1)
                value = self.add(
                    "Clip", "clip", value, self.constant(np.float32(-limit / 2)), self.constant(np.float32(limit))
                )
            self.tensor = self.add("QuantizeLinear", "quantise", value, *after)
        else:
            operands = [self.tensor, *before, weights, w_scale, w_zero, *after]
            domain = ""
            if operator == "Gemm":
                operator, domain = "QGemm", "com.microsoft"
                operands.insert(6, self.constant(bias) if has_bias else "")
            elif operator == "MatMul":
                operator = "QLinearMatMul"
            else:
                operator = "QLinearConv"
                if has_bias:
                    operands.append(self.constant(bias))
            self.tensor = self.add(operator, name, *operands, domain=domain, **attributes)
        self.scale, self.zero = after
        self.shape = output

    def window(self, kernel: tuple[int, int], *, pool: bool) -> tuple[dict[str, Any], tuple[int, int]]:
        """Random attributes of a Conv or MaxPool and its output's size by PyTorch's and ONNX's formulas."""
        stride = [int(s) for s in self.random.integers(1, 4, 2)]
        attributes: dict[str, Any] = {"strides": stride}
        pads = [0, 0, 0, 0]
        mode = self.random.random()
        dilation = [1, 1]
        if mode >= 0.2 and self.random.random() < 0.4:
            most = [(size - 1) // max(1, k - 1) for size, k in zip(self.shape[1:], kernel, strict=True)]
            attributes["dilations"] = dilation = [int(self.random.integers(1, max(1, min(3, d)) + 1)) for d in most]
        covered = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        if mode < 0.2 and (not pool or all(k >= s for k, s in zip(kernel, stride, strict=True))):
            attributes["auto_pad"] = str(self.random.choice(["SAME_UPPER", "SAME_LOWER"]))
            self.reference &= not pool  # onnx.reference's MaxPool takes both for the same
            return attributes, tuple(-(-size // s) for size, s in zip(self.shape[1:], stride, strict=True))  # type: ignore[return-value]
        if mode < 0.3:
            attributes["auto_pad"] = "VALID"
        elif mode < 0.8:
            pads = [int(self.random.integers(0, k)) for k in (*kernel, *kernel)]
            attributes["pads"] = pads
        ceil = pool and mode >= 0.3 and self.random.random() < 0.5
        for extent, k, s, before, after in zip(self.shape[1:], covered, stride, pads, pads[2:], strict=False):
            # The shape inference of onnx 1.23 counts windows that start behind the map; see the test below.
            ceil = ceil and -(-(extent + before + after - k) // s) * s < extent + before
        if ceil:
            attributes["ceil_mode"] = 1
        # onnx.reference's MaxPool with unit strides fails on some uneven pads, and ceil_mode pads both sides there
        self.reference &= not pool or (stride != [1, 1] and not ceil)
        size = []
        for axis in range(2):
            extent = self.shape[1 + axis]
            room = extent + pads[axis] + pads[axis + 2] - covered[axis]
            count = room // stride[axis] + 1
            if ceil and room % stride[axis]:
                count += 1
            size.append(count)
        return attributes, (size[0], size[1])

    def conv(self, name: str, groups: int = 1, each: int | None = None) -> None:
        """``each``: output channels of each group; by default any number."""
        kernel = tuple(int(k) for k in self.random.integers(1, 5, 2))
        kernel = tuple(min(k, size) for k, size in zip(kernel, self.shape[1:], strict=True))
        outputs = int(self.random.integers(1, 8)) if each is None else groups * each
        attributes, size = self.window(kernel, pool=False)
        if each is not None:
            attributes["group"] = groups
        self.product("Conv", name, (outputs, self.shape[0] // groups, *kernel), 0, (outputs, *size), **attributes)

    def pool(self, name: str) -> None:
        kernel = tuple(min(int(k), size) for k, size in zip(self.random.integers(1, 4, 2), self.shape[1:], strict=True))
        attributes, size = self.window(kernel, pool=True)
        source = self.dequantised() if self.qdq else self.tensor
        self.tensor = self.add("MaxPool", name, source, kernel_shape=kernel, **attributes)
        if self.qdq:
            self.tensor = self.add("QuantizeLinear", "quantise", self.tensor, self.scale, self.zero)
        self.shape = (self.shape[0], *size)

    def dense(self, name: str) -> None:
        if len(self.shape) == 3:
            source = self.dequantised() if self.qdq else self.tensor
            if self.random.random() < 0.5:
                self.tensor = self.add("Flatten", "flatten", source)
            else:
                shape = [[0, -1], [-1, int(np.prod(self.shape))]][self.random.integers(2)]
                self.tensor = self.add("Reshape", "reshape", source, self.constant(np.array(shape)))
            if self.qdq:
                self.tensor = self.add("QuantizeLinear", "quantise", self.tensor, self.scale, self.zero)
            self.shape = (int(np.prod(self.shape)),)
        outputs = int(self.random.integers(1, 20))
        if self.random.random() < 0.5:
            self.product("MatMul", name, (self.shape[0], outputs), 1, (outputs,))
        elif self.random.random() < 0.5:
            self.product("Gemm", name, (self.shape[0], outputs), 1, (outputs,))
        else:
            self.product("Gemm", name, (outputs, self.shape[0]), 0, (outputs,), transB=1)

    def model(self) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        graph = helper.make_graph(
            self.nodes,
            "random",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", *self.input_shape])],
            [helper.make_tensor_value_info(self.tensor, kind, ["batch", *self.shape])],
            self.constants,
        )
        opset = int(self.random.choice([19, 20, 21]))
        if self.bits > 8 and not self.domain:
            opset = 21
        imports = [helper.make_opsetid("", opset)]
        if not self.qdq or self.domain:
            imports.append(helper.make_opsetid("com.microsoft", 1))
        return helper.make_model(graph, opset_imports=imports, ir_version=9)

    def frames(self, count: int = 4) -> np.ndarray:
        return self.random.normal(0, 2, (count, *self.input_shape)).astype(np.float32)


def random_model(seed: int, *, qdq: bool, powers: bool, deep: bool, bits: int = 8) -> Writer:
    writer = Writer(seed, qdq=qdq, powers=powers, bits=bits)
    plan = writer.random.choice(["c", "cp", "pc", "d", "cpd"] if not deep else ["cpcp", "cpcd", "ccdd", "pcpd"])
    for index, letter in enumerate(plan, start=1):
        {"c": writer.conv, "p": writer.pool, "d": writer.dense}[letter](f"layer{index}")
    return writer


def quantised_chain(
    *nodes: tuple[str, dict[str, Any]], shape: tuple[int, ...] = (2, 10, 11), opset: int = 21
) -> onnx.ModelProto:
    """QDQ around each of ``nodes``, all of scale 1/8 and zero point 100; Conv gets two 3x3 filters."""
    weights = np.random.default_rng(3).integers(-9, 10, (2, shape[0], 3, 3)).astype(np.int8)
    constants = {
        "s": np.float32(0.125),
        "z": np.uint8(100),
        "w": weights,
        "w_s": np.float32(0.0625),
        "w_z": np.int8(0),
    }
    graph_nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])]
    tensor = "q"
    rank = 2 if any(operator == "Flatten" for operator, _ in nodes) else len(shape) + 1
    for index, (operator, attributes) in enumerate(nodes):
        extra = []
        if operator == "Conv":
            extra = [f"w{index}"]
            graph_nodes.append(helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], extra))
        graph_nodes += [
            helper.make_node("DequantizeLinear", [tensor, "s", "z"], [f"d{index}"]),
            helper.make_node(operator, [f"d{index}", *extra], [f"n{index}"], name=f"node{index}", **attributes),
            helper.make_node("QuantizeLinear", [f"n{index}", "s", "z"], [f"q{index}"]),
        ]
        tensor = f"q{index}"
    return as_model(
        graph_nodes,
        {"x": (TensorProto.FLOAT, [None, *shape])},
        {tensor: (TensorProto.UINT8, [None] * rank)},
        constants,
        opset=opset,
    )


def frames_for(model: onnx.ModelProto, count: int = 2) -> np.ndarray:
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    return np.random.default_rng(1).normal(0, 6, (count, *shape)).astype(np.float32)


def spoilt(writer: Writer) -> onnx.ModelProto:
    """Return a random model with one or two changes of nodes, tensors, input or output."""
    random = writer.random
    model = writer.model()
    graph = model.graph

    def any_of(items: Any) -> Any:
        return items[int(random.integers(len(items)))]

    for _ in range(int(random.integers(1, 3))):
        node, tensor = any_of(graph.node), any_of(graph.initializer)
        change = random.choice(["input", "operator", "attribute", "tensor", "remove", "output", "type"])
        if change == "input":
            node.input[int(random.integers(len(node.input)))] = any_of([tensor.name, any_of(graph.node).output[0], ""])
        elif change == "operator":
            node.op_type = any_of([other.op_type for other in graph.node] + ["Relu", "Clip", "Add", "Softmax"])
        elif change == "attribute" and node.attribute:
            attribute, value = any_of(node.attribute), int(random.integers(-1, 4))
            if attribute.ints:
                attribute.ints[int(random.integers(len(attribute.ints)))] = value
            else:
                attribute.i = value
        elif change == "tensor":
            values = numpy_helper.to_array(tensor)
            other = any_of([values * 0, values.ravel()[:1], values.ravel()[0], *map(values.astype, ("i4", "f4", "u1"))])
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(other), tensor.name))
        elif change == "remove":
            graph.node.remove(node)
        elif change == "output":
            graph.output[0].name = node.output[0]
        elif change == "type":
            graph.input[0].type.tensor_type.elem_type = any_of([1, 2, 3, 5])
    return model


class GraphWriter(Writer):
    """Writes a model that branches, of operators for all of which ONNX Runtime has integer kernels, and of sums with a
    Relu behind them, for which it has none."""

    def __init__(self, seed: int):
        super().__init__(seed, qdq=seed % 3 > 0, powers=seed % 4 == 0, channels=1 + seed % 5, tame=saturates())

    @property
    def here(self) -> tuple[str, str, str, tuple[int, ...]]:
        return self.tensor, self.scale, self.zero, self.shape

    @here.setter
    def here(self, place: tuple[str, str, str, tuple[int, ...]]) -> None:
        self.tensor, self.scale, self.zero, self.shape = place

    def same(self, name: str, outputs: int, stride: int = 1) -> None:
        """Add a convolution with padding that keeps the map's size, up to ``stride``, without activation."""
        channels, *size = self.shape
        kernel = int(self.random.choice([1, 3]))
        low = 64 if self.tame else 127
        weights = self.constant(
            self.random.integers(-low, low + 1, (outputs, channels, kernel, kernel)).astype(np.int8)
        )
        w_scale = self.constant(self.number(0.01))
        w_zero = self.constant(np.zeros((), np.int8))
        step = np.sqrt(channels * kernel**2) * 60 * low / 2
        before = self.scale, self.zero
        after = self.quantisation(float(self.values(self.scale) * self.values(w_scale)) * step / 50)
        window = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "kernel_shape": [kernel] * 2}
        if self.qdq:
            operands = [self.dequantised(), self.add("DequantizeLinear", "weights", weights, w_scale, w_zero)]
            value = self.add("Conv", name, *operands, **window)
            self.tensor = self.add("QuantizeLinear", "quantise", value, *after)
        else:
            operands = [self.tensor, *before, weights, w_scale, w_zero, *after]
            self.tensor = self.add("QLinearConv", name, *operands, **window)
        self.scale, self.zero = after
        self.shape = (outputs, *((side - 1) // stride + 1 for side in size))

    def join(self, operator: str, name: str, *others: tuple[str, str, str, tuple[int, ...]]) -> None:
        places = [self.here, *others]
        about = float(max(self.values(scale) for _, scale, _, _ in places)) * (1.5 if operator == "Add" else 1)
        if operator == "Mul":
            about = 60 * float(np.prod([self.values(scale) for _, scale, _, _ in places]))
        after = self.quantisation(about)
        axis = {"axis": 1} if operator == "Concat" else {}
        if self.qdq:
            operands = []
            for place in places:
                self.here = place
                operands.append(self.dequantised())
            value = self.add(operator, name, *operands, **axis)
            if operator == "Add" and self.random.random() < 0.5:
                value = self.add("Relu", "relu", value)
            self.tensor = self.add("QuantizeLinear", "quantise", value, *after)
        else:
            flat = [each for place in places for each in place[:3]]
            operands = [*after, *flat] if operator == "Concat" else [*flat, *after]
            self.tensor = self.add(f"QLinear{operator}", name, *operands, domain="com.microsoft", **axis)
        self.scale, self.zero = after
        channels = sum(shape[0] for *_, shape in places) if operator == "Concat" else places[0][3][0]
        self.shape = (channels, *places[0][3][1:])

    def upsample(self, name: str) -> None:
        """Rows and columns two or three times, as most exporters say it, or as few do."""
        factor = int(self.random.choice([2, 3]))
        empty, scales = self.constant(np.zeros(0, np.float32)), self.constant(np.array([1, 1, factor, factor], "f4"))
        way = [
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            {"coordinate_transformation_mode": "half_pixel"},
            {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"},
        ][self.random.integers(3)]
        channels, rows, columns = self.shape
        value = self.dequantised() if self.qdq else self.tensor
        value = self.add("Resize", name, value, empty, scales, **way)
        self.tensor = self.add("QuantizeLinear", "quantise", value, self.scale, self.zero) if self.qdq else value
        self.shape = (channels, rows * factor, columns * factor)

    def squeezed(self, name: str) -> None:
        """Add a global average pool, and a convolution of its one pixel."""
        before, channels = (self.scale, self.zero), self.shape[0]
        if self.qdq:
            value = self.add("GlobalAveragePool", name, self.dequantised())
            self.tensor = self.add("QuantizeLinear", "quantise", value, *before)
        else:
            operands = [self.tensor, *before, *before]
            self.tensor = self.add("QLinearGlobalAveragePool", name, *operands, domain="com.microsoft", channels_last=0)
        self.shape = (channels, 1, 1)
        self.same(f"{name}_excite", channels)

    def block(self, name: str) -> None:
        """One to three layers and a shortcut; or as many pixels again, or a map scaled by a pixel of its own."""
        before, channels, kind = self.here, self.shape[0], self.random.integers(7)
        if kind == 5:
            self.squeezed(f"{name}_squeeze")
            pixel, self.here = self.here, before
            self.join("Mul", f"{name}_join", pixel)
            return
        if kind == 6 and max(self.shape[1:]) <= 8:
            self.upsample(f"{name}_up")
            return
        stride = 2 if kind == 1 and min(self.shape[1:]) > 3 else 1
        outputs = int(self.random.integers(1, 7)) if kind == 1 else channels
        self.same(f"{name}_a", outputs, stride)
        if self.random.random() < 0.5:
            self.same(f"{name}_b", outputs)
        after = self.here
        if kind == 1:
            self.here = before
            self.same(f"{name}_short", outputs, stride)
            before = self.here
        self.here = after
        self.join({2: "Concat", 4: "Mul"}.get(int(kind), "Add"), f"{name}_join", before)


def random_graph(seed: int) -> GraphWriter:
    writer = GraphWriter(seed)
    if seed % 2:
        writer.same("layer_stem", 4)
    for number in range(1 + seed % 3):
        writer.block(f"layer{number}")
    if seed % 5 == 0:
        writer.dense("layer_dense")
    return writer


def with_outputs(writer: GraphWriter, count: int) -> onnx.ModelProto:
    """Return the writer's model with ``count`` outputs: its last map, heads and inner maps, as integers or floats."""
    random = np.random.default_rng(writer.random.integers(1 << 30))
    last, flat = writer.here, [node.op_type in ("Flatten", "Reshape") for node in writer.nodes]
    maps = writer.nodes[: flat.index(True) if any(flat) else None]
    kinds = ("QuantizeLinear", "QLinearConv", "QLinearAdd", "QLinearConcat")
    inner = [node.output[0] for node in maps if node.op_type in kinds and node.input[0] != "image"]
    chosen = [last[0]]
    for _ in range(count - 1):
        if inner and random.random() < 0.5:
            chosen.append(str(random.choice(inner)))
            continue
        writer.here = last
        if len(writer.shape) == 3:
            writer.same(f"layer_head{len(chosen)}", int(random.integers(1, 5)))
        chosen.append(writer.tensor)
    writer.here = last
    model = writer.model()
    del model.graph.output[:]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(writer.dtype))
    for tensor in dict.fromkeys(chosen):
        shape = ["batch", *last[3]] if tensor == last[0] else [None] * 4
        node = {name: node for node in writer.nodes for name in node.output}[tensor]
        # As floats: scale and zero point are where each operator has them.
        place = {"QuantizeLinear": 1, "QLinearConv": 6, "QLinearAdd": 6, "QLinearConcat": 0}.get(node.op_type)
        if place is not None and random.random() < 0.5:
            name = f"{tensor}_real"
            operands = [tensor, *node.input[place : place + 2]]
            model.graph.node.append(helper.make_node("DequantizeLinear", operands, [name]))
            model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        else:
            model.graph.output.append(helper.make_tensor_value_info(tensor, kind, shape))
    return model


SIZES = {"left": (2, 4, 6), "right": (2, 4, 6), "mask": (1, 2, 3)}


def siamese() -> onnx.ModelProto:
    """Two pictures through the same weights, their difference, and a smaller map that is added, in float."""
    rng = np.random.default_rng(4)
    constants: dict[str, np.ndarray] = {
        "w1": rng.normal(0, 0.4, (3, 2, 3, 3)),
        "w2": rng.normal(0, 0.3, (2, 3, 3, 3)),
        "w3": rng.normal(0, 0.4, (2, 1, 1, 1)),
    }
    nodes = []

    def add(operator: str, *inputs: str, to: str, **attributes) -> None:
        nodes.append(helper.make_node(operator, inputs, [to], name=to, **attributes))

    for side in ("left", "right"):
        add("Conv", side, "w1", to=f"{side} sums", pads=[1] * 4)
        add("Relu", f"{side} sums", to=f"{side} relu")
        add("Conv", f"{side} relu", "w2", to=f"{side} half", strides=[2, 2], pads=[1] * 4)
    add("Sub", "left half", "right half", to="difference")
    add("Conv", "mask", "w3", to="mask conv")
    add("Add", "difference", "mask conv", to="y")
    shapes = {name: ["batch", *size] for name, size in SIZES.items()}
    return as_model(
        nodes,
        {name: (TensorProto.FLOAT, shape) for name, shape in shapes.items()},
        {"y": (TensorProto.FLOAT, ["batch", 2, 2, 3])},
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in constants.items()],
    )


def pictures(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(count, *size)).astype(np.float32) for name, size in SIZES.items()}
