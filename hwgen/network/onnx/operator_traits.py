"""Table of ONNX operators: what each does with values, who computes it, and which of its inputs hold maps.

An operator has one entry, under its name; com.microsoft's are among them. Its functions (import, frames of a batch,
multiply-accumulates) are in the modules of these tasks, by the same names. An operator without an entry is of
`Effect.OTHER`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import onnx


class Effect(Enum):
    """Effect of an ONNX operator on values (elementwise, move, sum ..), as texts for the table of operators."""

    FUNCTION = "compute a function of each value, in the same type and place"
    CONVERSION = "compute a function of each value, in another type or on bits"
    ARITHMETIC = "compute each value from the values at the same place of several operands"
    QUANTISER = "turn floats into integers, or back"
    SAME = "change nothing"
    RENAMING = "rename or reorder dimensions"
    REPEAT = "repeat values"
    SELECTION = "select or reorder values of one tensor"
    PARTS = "join several tensors, or cut one into several"
    RESIZE = "interpolate pixels, or repeat them"
    PLACE = "read or write values at places that other tensors give"
    SIZES = "make values only from shapes"
    RANDOM = "draw values"
    REDUCTION = "reduce axes to one value each"
    SOFTMAX = "compute a Softmax, or its logarithm"
    NORMALISATION = "normalise or accumulate values along axes"
    TOKEN_NORMALISATION = "normalise each position over its channels, as transformers do"
    POOL = "reduce the values in a sliding window"
    GLOBAL_POOL = "reduce each channel of a map to one value"
    CONVOLUTION = "multiply the values in a sliding window by weights"
    PRODUCT = "multiply matrices"
    RECURRENCE = "compute a sequence step by step"
    UNCOUNTED = "multiply by a number of products that does not follow from shapes known here"
    RAGGED = "give as many values as the operands' values make"
    OTHER = "do something else"


POINTWISE = (Effect.FUNCTION, Effect.CONVERSION, Effect.ARITHMETIC)
"""Tuple of `Effect` members of elementwise operators, which keep the position of each value."""
MOVES = (Effect.SAME, Effect.RENAMING, Effect.REPEAT, Effect.SELECTION)
"""Tuple of `Effect` members of operators that only change the positions of their first input's values."""


@dataclass(frozen=True)
class Traits:
    """Properties of an ONNX operator: its effect on values, who can run it, and which inputs hold maps and weights.

    Parameters
    ----------
    effect : Effect
        What the operator does with values.
    on_host : bool
        Whether the host can run the operator after the last integer tensor.
    in_integers : bool
        Whether ONNX Runtime's kernel takes integers, and computes in integers.
    passed : bool
        Whether ONNX Runtime moves a DequantizeLinear, and a QuantizeLinear, past the operator.
    operands : tuple of int
        Inputs that hold tensors to compute with: the map first, then weights or other maps. Other inputs are scales,
        sizes, axes or biases. If empty, all inputs are operands.
    like : str
        ONNX operator whose output has the same shape, for operators of ONNX Runtime, which ONNX does not know.
    channels_last : bool
        Whether the channels are the last dimension of a map.
    """

    effect: Effect
    on_host: bool = False
    in_integers: bool = False
    passed: bool = False
    operands: tuple[int, ...] = ()
    like: str = ""
    channels_last: bool = False


def _traits(names: str, traits: Traits) -> dict[str, Traits]:
    """Return, as a dict, a table entry with equal traits for each of the operators ``names``, separated by spaces."""
    return dict.fromkeys(names.split(), traits)


TRAITS: Mapping[str, Traits] = {
    **_traits(
        "Abs Ceil Celu Clip Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg Reciprocal Relu Round "
        "Selu Sigmoid Sign Softplus Softsign Sqrt Tanh ThresholdedRelu",
        Traits(Effect.FUNCTION, on_host=True),
    ),
    **_traits(
        "Acos Acosh Asin Asinh Atan Atanh Cos Cosh FastGelu QuickGelu Shrink Sin Sinh Swish Tan",
        Traits(Effect.FUNCTION),
    ),
    **_traits("QLinearLeakyRelu QLinearSigmoid", Traits(Effect.FUNCTION, in_integers=True, operands=(0,))),
    **_traits("Cast Not", Traits(Effect.CONVERSION, on_host=True)),
    **_traits("BitwiseNot IsInf IsNaN", Traits(Effect.CONVERSION)),
    "CastLike": Traits(Effect.CONVERSION, operands=(0,)),
    **_traits(
        "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mul Or Pow Sub Sum Where",
        Traits(Effect.ARITHMETIC, on_host=True),
    ),
    **_traits("BitShift BitwiseAnd BitwiseOr BitwiseXor Mod PRelu Xor", Traits(Effect.ARITHMETIC)),
    "BiasGelu": Traits(Effect.ARITHMETIC, like="Identity"),
    "QLinearAdd": Traits(Effect.ARITHMETIC, in_integers=True, operands=(0, 3), like="Add"),
    "QLinearMul": Traits(Effect.ARITHMETIC, in_integers=True, operands=(0, 3), like="Mul"),
    "QLinearWhere": Traits(Effect.OTHER, in_integers=True, operands=(0, 1, 4), like="Where"),
    **_traits("DequantizeLinear QuantizeLinear", Traits(Effect.QUANTISER, on_host=True, operands=(0,))),
    "DynamicQuantizeLinear": Traits(Effect.QUANTISER),
    "Dropout": Traits(Effect.SAME, on_host=True, operands=(0,)),
    "Identity": Traits(Effect.SAME, on_host=True),
    "Flatten": Traits(Effect.RENAMING, on_host=True),
    **_traits("Reshape Squeeze Transpose Unsqueeze", Traits(Effect.RENAMING, on_host=True, passed=True, operands=(0,))),
    **_traits("Expand Tile", Traits(Effect.REPEAT, on_host=True, operands=(0,))),
    **_traits("DepthToSpace Gather SpaceToDepth", Traits(Effect.SELECTION, on_host=True, operands=(0,))),
    "Slice": Traits(Effect.SELECTION, on_host=True, passed=True, operands=(0,)),
    "Concat": Traits(Effect.PARTS, on_host=True),
    "QLinearConcat": Traits(Effect.PARTS, on_host=True, in_integers=True, like="Concat"),
    "Split": Traits(Effect.PARTS, on_host=True, operands=(0,)),
    "Resize": Traits(Effect.RESIZE, on_host=True, operands=(0,)),
    "Upsample": Traits(Effect.RESIZE, operands=(0,)),
    **_traits("GatherElements GatherND OneHot Pad ScatterElements ScatterND", Traits(Effect.PLACE, on_host=True)),
    **_traits("ReverseSequence Scatter", Traits(Effect.PLACE)),
    "Trilu": Traits(Effect.PLACE, operands=(0,), like="Identity"),
    **_traits("Constant ConstantOfShape Range Shape", Traits(Effect.SIZES, on_host=True)),
    **_traits("EyeLike Size", Traits(Effect.SIZES)),
    **_traits(
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike", Traits(Effect.RANDOM)
    ),
    **_traits(
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare",
        Traits(Effect.REDUCTION, on_host=True, operands=(0,)),
    ),
    "QLinearReduceMean": Traits(Effect.OTHER, in_integers=True, operands=(0,)),
    **_traits("LogSoftmax Softmax", Traits(Effect.SOFTMAX, on_host=True)),
    "QLinearSoftmax": Traits(Effect.SOFTMAX, on_host=True, in_integers=True, operands=(0,)),
    **_traits("CumSum Hardmax LpNormalization", Traits(Effect.NORMALISATION, on_host=True, operands=(0,))),
    **_traits(
        "BatchNormalization CumProd GroupNormalization InstanceNormalization MeanVarianceNormalization",
        Traits(Effect.NORMALISATION, operands=(0,)),
    ),
    **_traits("GroupNorm SkipGroupNorm", Traits(Effect.NORMALISATION, operands=(0,), like="Identity")),
    **_traits(
        "LayerNormalization RMSNormalization SimplifiedLayerNormalization SkipLayerNormalization "
        "SkipSimplifiedLayerNormalization",
        Traits(Effect.TOKEN_NORMALISATION, operands=(0,)),
    ),
    "LRN": Traits(Effect.OTHER),
    **_traits("AveragePool LpPool", Traits(Effect.POOL)),
    "MaxPool": Traits(Effect.POOL, passed=True),
    "NhwcMaxPool": Traits(Effect.POOL, operands=(0,), like="MaxPool", channels_last=True),
    "QLinearAveragePool": Traits(Effect.POOL, in_integers=True, operands=(0,), like="AveragePool"),
    **_traits("GlobalAveragePool GlobalMaxPool", Traits(Effect.GLOBAL_POOL)),
    "QLinearGlobalAveragePool": Traits(Effect.GLOBAL_POOL, in_integers=True, operands=(0,), like="GlobalAveragePool"),
    **_traits(
        "CausalConvWithState Conv ConvTranspose ConvTransposeWithDynamicPads DeformConv",
        Traits(Effect.CONVOLUTION, operands=(0, 1)),
    ),
    "FusedConv": Traits(Effect.CONVOLUTION, operands=(0, 1), like="Conv"),
    **_traits("NhwcConv NhwcFusedConv", Traits(Effect.CONVOLUTION, operands=(0, 1), like="Conv", channels_last=True)),
    "ConvInteger": Traits(Effect.CONVOLUTION, in_integers=True, operands=(0, 1)),
    "QLinearConv": Traits(Effect.CONVOLUTION, in_integers=True, operands=(0, 3), like="Conv"),
    **_traits(
        "FusedMatMul FusedMatMulActivation Gemm GemmFloat8 MatMul TransposeMatMul",
        Traits(Effect.PRODUCT, operands=(0, 1)),
    ),
    "FusedGemm": Traits(Effect.PRODUCT, operands=(0, 1), like="Gemm"),
    **_traits(
        "DynamicQuantizeMatMul GemmFastGelu MatMulIntegerToFloat",
        Traits(Effect.PRODUCT, operands=(0, 1), like="MatMul"),
    ),
    "MatMulInteger": Traits(Effect.PRODUCT, in_integers=True, operands=(0, 1)),
    "MatMulInteger16": Traits(Effect.PRODUCT, in_integers=True, operands=(0, 1), like="MatMul"),
    "QGemm": Traits(Effect.PRODUCT, in_integers=True, operands=(0, 3), like="Gemm"),
    "QLinearMatMul": Traits(Effect.PRODUCT, in_integers=True, operands=(0, 3)),
    **_traits("MatMulBnb4 MatMulNBits", Traits(Effect.PRODUCT, operands=(0,))),
    **_traits("AttnLSTM DynamicQuantizeLSTM GRU LSTM RNN", Traits(Effect.RECURRENCE, operands=(0, 1, 2))),
    **_traits(
        "BeamSearch DecoderAttention DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention "
        "DynamicSparseAttention FlexAttention GatedDeltaNet GatedRelativePositionBias GreedySearch "
        "GroupQueryAttention LinearAttention MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight MatMulFpQ4 "
        "MatMulNBitsMlp MatMulNBitsQLoRA MatMulNBitsQkv MatMulPacked MoE MoEPacked PackedAttention "
        "PackedMultiHeadAttention PagedAttention QMoE QOrderedAttention QOrderedLongformerAttention QOrderedMatMul "
        "Sampling SparseAttention SparsePagedAttention SparseToDenseMatMul VarlenCausalConvWithState "
        "WhisperBeamSearch WordConvEmbedding",
        Traits(Effect.UNCOUNTED),
    ),
    "LongformerAttention": Traits(Effect.UNCOUNTED, operands=(0,), like="Identity"),
    **_traits("NonMaxSuppression NonZero", Traits(Effect.RAGGED, on_host=True)),
    **_traits("Compress Unique", Traits(Effect.RAGGED)),
    "TopK": Traits(Effect.OTHER, on_host=True),
    **_traits(
        "BiasAdd BiasDropout BiasSoftmax BitmaskBiasDropout RotaryEmbedding ScaledSiLU",
        Traits(Effect.OTHER, operands=(0,), like="Identity"),
    ),
}
"""Dictionary of the `Traits` of all known ONNX operators, by the operator's name."""


def with_effect(*effects: Effect) -> frozenset[str]:
    """Return a set of the names of the operators that have one of the effects ``effects``."""
    return frozenset(name for name, traits in TRAITS.items() if traits.effect in effects)


def traits_of(node: onnx.NodeProto) -> Traits:
    """Return the `Traits` of a node's operator; an unknown operator has the traits of `Effect.OTHER`."""
    return TRAITS.get(node.op_type, Traits(Effect.OTHER))


def operands_of(node: onnx.NodeProto) -> Sequence[int]:
    """Return a sequence of indices of a node's inputs that hold tensors to compute with, not scales or zero points."""
    if node.op_type == "QLinearConcat":
        return range(2, len(node.input), 3)
    count = len(node.input)
    return [index for index in traits_of(node).operands or range(count) if index < count]


PASSED = frozenset(name for name, traits in TRAITS.items() if traits.passed)
"""Set of names of ONNX operators past which ONNX Runtime moves a DequantizeLinear or a QuantizeLinear."""
CONVOLUTIONS = {
    name: traits.operands[1]
    for name, traits in TRAITS.items()
    if traits.effect is Effect.CONVOLUTION and not traits.channels_last
}
"""Dictionary by the operator's name: input index of the weights of each convolution operator with channels first."""
PRODUCTS = {
    name: traits.operands[1]
    for name, traits in TRAITS.items()
    if traits.effect is Effect.PRODUCT and len(traits.operands) > 1
}
"""Dictionary by operator: input index of the second matrix of each ONNX operator that multiplies two inputs."""
