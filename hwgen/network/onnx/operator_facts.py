"""Table of ONNX operators: what each does with values, who computes it, and which of its inputs hold maps.

An operator has one entry, under its name; com.microsoft's are among them. Its functions (import, frames of a batch,
multiply-accumulates) are in the modules of these tasks, by the same names. An operator without an entry is of
`Kind.OTHER`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

import onnx


class Kind(Enum):
    """What an ONNX operator does with values."""

    FUNCTION = auto()
    """Compute a function of each value, in the same type and place."""
    CONVERSION = auto()
    """Compute a function of each value, in another type or on bits."""
    ARITHMETIC = auto()
    """Compute each value from the values at the same place of several operands."""
    QUANTISER = auto()
    """Turn floats into integers, or back."""
    SAME = auto()
    """Change nothing."""
    RENAMING = auto()
    """Rename or reorder dimensions."""
    REPEAT = auto()
    """Repeat values."""
    SELECTION = auto()
    """Select or reorder values of one tensor."""
    PARTS = auto()
    """Join several tensors, or cut one into several."""
    RESIZE = auto()
    """Interpolate pixels, or repeat them."""
    PLACE = auto()
    """Read or write values at places that other tensors give."""
    SIZES = auto()
    """Make values from shapes alone."""
    RANDOM = auto()
    """Draw values."""
    REDUCTION = auto()
    """Reduce axes to one value each."""
    SOFTMAX = auto()
    """Compute a Softmax, or its logarithm."""
    NORMALISATION = auto()
    """Normalise or accumulate values along axes."""
    TOKEN_NORMALISATION = auto()
    """Normalise each position over its channels, as transformers do."""
    POOL = auto()
    """Reduce the values in a sliding window."""
    GLOBAL_POOL = auto()
    """Reduce each channel of a map to one value."""
    CONVOLUTION = auto()
    """Multiply the values in a sliding window by weights."""
    PRODUCT = auto()
    """Multiply matrices."""
    RECURRENCE = auto()
    """Compute a sequence step by step."""
    UNCOUNTED = auto()
    """Multiply by a number of products that does not follow from shapes known here."""
    RAGGED = auto()
    """Give as many values as the operands' values make."""
    OTHER = auto()
    """Do anything else."""


@dataclass(frozen=True)
class Facts:
    """Entry of an ONNX operator.

    Parameters
    ----------
    kind : Kind
        What the operator does with values.
    on_host : bool
        Whether the host can run the operator behind the last integer tensor.
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

    kind: Kind
    on_host: bool = False
    in_integers: bool = False
    passed: bool = False
    operands: tuple[int, ...] = ()
    like: str = ""
    channels_last: bool = False


def _each(names: str, facts: Facts) -> dict[str, Facts]:
    """Return entries of the operators ``names``, which are separated by spaces."""
    return dict.fromkeys(names.split(), facts)


FACTS: Mapping[str, Facts] = {
    **_each(
        "Abs Ceil Celu Clip Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg Reciprocal Relu Round "
        "Selu Sigmoid Sign Softplus Softsign Sqrt Tanh ThresholdedRelu",
        Facts(Kind.FUNCTION, on_host=True),
    ),
    **_each(
        "Acos Acosh Asin Asinh Atan Atanh Cos Cosh FastGelu QuickGelu Shrink Sin Sinh Swish Tan", Facts(Kind.FUNCTION)
    ),
    **_each("QLinearLeakyRelu QLinearSigmoid", Facts(Kind.FUNCTION, in_integers=True, operands=(0,))),
    **_each("Cast Not", Facts(Kind.CONVERSION, on_host=True)),
    **_each("BitwiseNot IsInf IsNaN", Facts(Kind.CONVERSION)),
    "CastLike": Facts(Kind.CONVERSION, operands=(0,)),
    **_each(
        "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mul Or Pow Sub Sum Where",
        Facts(Kind.ARITHMETIC, on_host=True),
    ),
    **_each("BitShift BitwiseAnd BitwiseOr BitwiseXor Mod PRelu Xor", Facts(Kind.ARITHMETIC)),
    "BiasGelu": Facts(Kind.ARITHMETIC, like="Identity"),
    "QLinearAdd": Facts(Kind.ARITHMETIC, in_integers=True, operands=(0, 3), like="Add"),
    "QLinearMul": Facts(Kind.ARITHMETIC, in_integers=True, operands=(0, 3), like="Mul"),
    "QLinearWhere": Facts(Kind.OTHER, in_integers=True, operands=(0, 1, 4), like="Where"),
    **_each("DequantizeLinear QuantizeLinear", Facts(Kind.QUANTISER, on_host=True, operands=(0,))),
    "DynamicQuantizeLinear": Facts(Kind.QUANTISER),
    "Dropout": Facts(Kind.SAME, on_host=True, operands=(0,)),
    "Identity": Facts(Kind.SAME, on_host=True),
    "Flatten": Facts(Kind.RENAMING, on_host=True),
    **_each("Reshape Squeeze Transpose Unsqueeze", Facts(Kind.RENAMING, on_host=True, passed=True, operands=(0,))),
    **_each("Expand Tile", Facts(Kind.REPEAT, on_host=True, operands=(0,))),
    **_each("DepthToSpace Gather SpaceToDepth", Facts(Kind.SELECTION, on_host=True, operands=(0,))),
    "Slice": Facts(Kind.SELECTION, on_host=True, passed=True, operands=(0,)),
    "Concat": Facts(Kind.PARTS, on_host=True),
    "QLinearConcat": Facts(Kind.PARTS, on_host=True, in_integers=True),
    "Split": Facts(Kind.PARTS, on_host=True, operands=(0,)),
    "Resize": Facts(Kind.RESIZE, on_host=True, operands=(0,)),
    "Upsample": Facts(Kind.RESIZE, operands=(0,)),
    **_each("GatherElements GatherND OneHot Pad ScatterElements ScatterND", Facts(Kind.PLACE, on_host=True)),
    **_each("ReverseSequence Scatter", Facts(Kind.PLACE)),
    "Trilu": Facts(Kind.PLACE, operands=(0,), like="Identity"),
    **_each("Constant ConstantOfShape Range Shape", Facts(Kind.SIZES, on_host=True)),
    **_each("EyeLike Size", Facts(Kind.SIZES)),
    **_each("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike", Facts(Kind.RANDOM)),
    **_each(
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare",
        Facts(Kind.REDUCTION, on_host=True, operands=(0,)),
    ),
    "QLinearReduceMean": Facts(Kind.OTHER, in_integers=True, operands=(0,), like="ReduceMean"),
    **_each("LogSoftmax Softmax", Facts(Kind.SOFTMAX, on_host=True)),
    "QLinearSoftmax": Facts(Kind.SOFTMAX, on_host=True, in_integers=True, operands=(0,)),
    **_each("CumSum Hardmax LpNormalization", Facts(Kind.NORMALISATION, on_host=True, operands=(0,))),
    **_each(
        "BatchNormalization CumProd GroupNormalization InstanceNormalization MeanVarianceNormalization",
        Facts(Kind.NORMALISATION, operands=(0,)),
    ),
    **_each("GroupNorm SkipGroupNorm", Facts(Kind.NORMALISATION, operands=(0,), like="Identity")),
    **_each(
        "LayerNormalization RMSNormalization SimplifiedLayerNormalization SkipLayerNormalization "
        "SkipSimplifiedLayerNormalization",
        Facts(Kind.TOKEN_NORMALISATION, operands=(0,)),
    ),
    "LRN": Facts(Kind.OTHER),
    **_each("AveragePool LpPool", Facts(Kind.POOL)),
    "MaxPool": Facts(Kind.POOL, passed=True),
    "NhwcMaxPool": Facts(Kind.POOL, operands=(0,), like="MaxPool", channels_last=True),
    "QLinearAveragePool": Facts(Kind.POOL, in_integers=True, operands=(0,), like="AveragePool"),
    **_each("GlobalAveragePool GlobalMaxPool", Facts(Kind.GLOBAL_POOL)),
    "QLinearGlobalAveragePool": Facts(Kind.GLOBAL_POOL, in_integers=True, operands=(0,), like="GlobalAveragePool"),
    **_each(
        "CausalConvWithState Conv ConvTranspose ConvTransposeWithDynamicPads DeformConv",
        Facts(Kind.CONVOLUTION, operands=(0, 1)),
    ),
    "FusedConv": Facts(Kind.CONVOLUTION, operands=(0, 1), like="Conv"),
    **_each("NhwcConv NhwcFusedConv", Facts(Kind.CONVOLUTION, operands=(0, 1), like="Conv", channels_last=True)),
    "ConvInteger": Facts(Kind.CONVOLUTION, in_integers=True, operands=(0, 1)),
    "QLinearConv": Facts(Kind.CONVOLUTION, in_integers=True, operands=(0, 3), like="Conv"),
    **_each(
        "FusedMatMul FusedMatMulActivation Gemm GemmFloat8 MatMul TransposeMatMul",
        Facts(Kind.PRODUCT, operands=(0, 1)),
    ),
    "FusedGemm": Facts(Kind.PRODUCT, operands=(0, 1), like="Gemm"),
    **_each(
        "DynamicQuantizeMatMul GemmFastGelu MatMulIntegerToFloat", Facts(Kind.PRODUCT, operands=(0, 1), like="MatMul")
    ),
    "MatMulInteger": Facts(Kind.PRODUCT, in_integers=True, operands=(0, 1)),
    "MatMulInteger16": Facts(Kind.PRODUCT, in_integers=True, operands=(0, 1), like="MatMul"),
    "QGemm": Facts(Kind.PRODUCT, in_integers=True, operands=(0, 3), like="Gemm"),
    "QLinearMatMul": Facts(Kind.PRODUCT, in_integers=True, operands=(0, 3)),
    **_each("MatMulBnb4 MatMulNBits", Facts(Kind.PRODUCT, operands=(0,))),
    **_each("AttnLSTM DynamicQuantizeLSTM GRU LSTM RNN", Facts(Kind.RECURRENCE, operands=(0, 1, 2))),
    **_each(
        "BeamSearch DecoderAttention DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention "
        "DynamicSparseAttention FlexAttention GatedDeltaNet GatedRelativePositionBias GreedySearch "
        "GroupQueryAttention LinearAttention MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight MatMulFpQ4 "
        "MatMulNBitsMlp MatMulNBitsQLoRA MatMulNBitsQkv MatMulPacked MoE MoEPacked PackedAttention "
        "PackedMultiHeadAttention PagedAttention QMoE QOrderedAttention QOrderedLongformerAttention QOrderedMatMul "
        "Sampling SparseAttention SparsePagedAttention SparseToDenseMatMul VarlenCausalConvWithState "
        "WhisperBeamSearch WordConvEmbedding",
        Facts(Kind.UNCOUNTED),
    ),
    "LongformerAttention": Facts(Kind.UNCOUNTED, operands=(0,), like="Identity"),
    **_each("NonMaxSuppression NonZero", Facts(Kind.RAGGED, on_host=True)),
    **_each("Compress Unique", Facts(Kind.RAGGED)),
    "TopK": Facts(Kind.OTHER, on_host=True),
    **_each(
        "BiasAdd BiasDropout BiasSoftmax BitmaskBiasDropout RotaryEmbedding ScaledSiLU",
        Facts(Kind.OTHER, operands=(0,), like="Identity"),
    ),
}
"""Facts by the operator's name."""


def of_kinds(*kinds: Kind) -> frozenset[str]:
    """Return the names of the operators of some kinds."""
    return frozenset(name for name, facts in FACTS.items() if facts.kind in kinds)


def facts_of(node: onnx.NodeProto) -> Facts:
    """Return the entry of a node's operator; without an entry, nothing is known of the operator."""
    return FACTS.get(node.op_type, Facts(Kind.OTHER))


PASSED = frozenset(name for name, facts in FACTS.items() if facts.passed)
"""ONNX operators past which ONNX Runtime moves a DequantizeLinear, and a QuantizeLinear."""
CONVOLUTIONS = {
    name: facts.operands[1]
    for name, facts in FACTS.items()
    if facts.kind is Kind.CONVOLUTION and not facts.channels_last
}
"""Convolution operators with channels first, with the index of the input that holds the weights."""
PRODUCTS = {
    name: facts.operands[1] for name, facts in FACTS.items() if facts.kind is Kind.PRODUCT and len(facts.operands) > 1
}
"""Matrix products of two inputs, with the index of the second."""
