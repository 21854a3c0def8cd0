"""Table of ONNX operators: what each does with values, who computes it, and which of its inputs hold maps.

An operator has one entry, under its name; com.microsoft's are among them. Its functions (import, frames of a batch,
multiply-accumulates) are in the modules of these tasks, by the same names. An operator without an entry is of
`OperatorKind.OTHER`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

import onnx


class OperatorKind(Enum):
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
class OperatorFacts:
    """Entry of an ONNX operator.

    Parameters
    ----------
    kind : OperatorKind
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

    kind: OperatorKind
    on_host: bool = False
    in_integers: bool = False
    passed: bool = False
    operands: tuple[int, ...] = ()
    like: str = ""
    channels_last: bool = False


def _each(names: str, facts: OperatorFacts) -> dict[str, OperatorFacts]:
    """Return entries of the operators ``names``, which are separated by spaces."""
    return dict.fromkeys(names.split(), facts)


FACTS: Mapping[str, OperatorFacts] = {
    **_each(
        "Abs Ceil Celu Clip Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg Reciprocal Relu Round "
        "Selu Sigmoid Sign Softplus Softsign Sqrt Tanh ThresholdedRelu",
        OperatorFacts(OperatorKind.FUNCTION, on_host=True),
    ),
    **_each(
        "Acos Acosh Asin Asinh Atan Atanh Cos Cosh FastGelu QuickGelu Shrink Sin Sinh Swish Tan",
        OperatorFacts(OperatorKind.FUNCTION),
    ),
    **_each("QLinearLeakyRelu QLinearSigmoid", OperatorFacts(OperatorKind.FUNCTION, in_integers=True, operands=(0,))),
    **_each("Cast Not", OperatorFacts(OperatorKind.CONVERSION, on_host=True)),
    **_each("BitwiseNot IsInf IsNaN", OperatorFacts(OperatorKind.CONVERSION)),
    "CastLike": OperatorFacts(OperatorKind.CONVERSION, operands=(0,)),
    **_each(
        "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mul Or Pow Sub Sum Where",
        OperatorFacts(OperatorKind.ARITHMETIC, on_host=True),
    ),
    **_each("BitShift BitwiseAnd BitwiseOr BitwiseXor Mod PRelu Xor", OperatorFacts(OperatorKind.ARITHMETIC)),
    "BiasGelu": OperatorFacts(OperatorKind.ARITHMETIC, like="Identity"),
    "QLinearAdd": OperatorFacts(OperatorKind.ARITHMETIC, in_integers=True, operands=(0, 3), like="Add"),
    "QLinearMul": OperatorFacts(OperatorKind.ARITHMETIC, in_integers=True, operands=(0, 3), like="Mul"),
    "QLinearWhere": OperatorFacts(OperatorKind.OTHER, in_integers=True, operands=(0, 1, 4), like="Where"),
    **_each("DequantizeLinear QuantizeLinear", OperatorFacts(OperatorKind.QUANTISER, on_host=True, operands=(0,))),
    "DynamicQuantizeLinear": OperatorFacts(OperatorKind.QUANTISER),
    "Dropout": OperatorFacts(OperatorKind.SAME, on_host=True, operands=(0,)),
    "Identity": OperatorFacts(OperatorKind.SAME, on_host=True),
    "Flatten": OperatorFacts(OperatorKind.RENAMING, on_host=True),
    **_each(
        "Reshape Squeeze Transpose Unsqueeze",
        OperatorFacts(OperatorKind.RENAMING, on_host=True, passed=True, operands=(0,)),
    ),
    **_each("Expand Tile", OperatorFacts(OperatorKind.REPEAT, on_host=True, operands=(0,))),
    **_each("DepthToSpace Gather SpaceToDepth", OperatorFacts(OperatorKind.SELECTION, on_host=True, operands=(0,))),
    "Slice": OperatorFacts(OperatorKind.SELECTION, on_host=True, passed=True, operands=(0,)),
    "Concat": OperatorFacts(OperatorKind.PARTS, on_host=True),
    "QLinearConcat": OperatorFacts(OperatorKind.PARTS, on_host=True, in_integers=True),
    "Split": OperatorFacts(OperatorKind.PARTS, on_host=True, operands=(0,)),
    "Resize": OperatorFacts(OperatorKind.RESIZE, on_host=True, operands=(0,)),
    "Upsample": OperatorFacts(OperatorKind.RESIZE, operands=(0,)),
    **_each(
        "GatherElements GatherND OneHot Pad ScatterElements ScatterND", OperatorFacts(OperatorKind.PLACE, on_host=True)
    ),
    **_each("ReverseSequence Scatter", OperatorFacts(OperatorKind.PLACE)),
    "Trilu": OperatorFacts(OperatorKind.PLACE, operands=(0,), like="Identity"),
    **_each("Constant ConstantOfShape Range Shape", OperatorFacts(OperatorKind.SIZES, on_host=True)),
    **_each("EyeLike Size", OperatorFacts(OperatorKind.SIZES)),
    **_each(
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
        OperatorFacts(OperatorKind.RANDOM),
    ),
    **_each(
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare",
        OperatorFacts(OperatorKind.REDUCTION, on_host=True, operands=(0,)),
    ),
    "QLinearReduceMean": OperatorFacts(OperatorKind.OTHER, in_integers=True, operands=(0,), like="ReduceMean"),
    **_each("LogSoftmax Softmax", OperatorFacts(OperatorKind.SOFTMAX, on_host=True)),
    "QLinearSoftmax": OperatorFacts(OperatorKind.SOFTMAX, on_host=True, in_integers=True, operands=(0,)),
    **_each("CumSum Hardmax LpNormalization", OperatorFacts(OperatorKind.NORMALISATION, on_host=True, operands=(0,))),
    **_each(
        "BatchNormalization CumProd GroupNormalization InstanceNormalization MeanVarianceNormalization",
        OperatorFacts(OperatorKind.NORMALISATION, operands=(0,)),
    ),
    **_each("GroupNorm SkipGroupNorm", OperatorFacts(OperatorKind.NORMALISATION, operands=(0,), like="Identity")),
    **_each(
        "LayerNormalization RMSNormalization SimplifiedLayerNormalization SkipLayerNormalization "
        "SkipSimplifiedLayerNormalization",
        OperatorFacts(OperatorKind.TOKEN_NORMALISATION, operands=(0,)),
    ),
    "LRN": OperatorFacts(OperatorKind.OTHER),
    **_each("AveragePool LpPool", OperatorFacts(OperatorKind.POOL)),
    "MaxPool": OperatorFacts(OperatorKind.POOL, passed=True),
    "NhwcMaxPool": OperatorFacts(OperatorKind.POOL, operands=(0,), like="MaxPool", channels_last=True),
    "QLinearAveragePool": OperatorFacts(OperatorKind.POOL, in_integers=True, operands=(0,), like="AveragePool"),
    **_each("GlobalAveragePool GlobalMaxPool", OperatorFacts(OperatorKind.GLOBAL_POOL)),
    "QLinearGlobalAveragePool": OperatorFacts(
        OperatorKind.GLOBAL_POOL, in_integers=True, operands=(0,), like="GlobalAveragePool"
    ),
    **_each(
        "CausalConvWithState Conv ConvTranspose ConvTransposeWithDynamicPads DeformConv",
        OperatorFacts(OperatorKind.CONVOLUTION, operands=(0, 1)),
    ),
    "FusedConv": OperatorFacts(OperatorKind.CONVOLUTION, operands=(0, 1), like="Conv"),
    **_each(
        "NhwcConv NhwcFusedConv",
        OperatorFacts(OperatorKind.CONVOLUTION, operands=(0, 1), like="Conv", channels_last=True),
    ),
    "ConvInteger": OperatorFacts(OperatorKind.CONVOLUTION, in_integers=True, operands=(0, 1)),
    "QLinearConv": OperatorFacts(OperatorKind.CONVOLUTION, in_integers=True, operands=(0, 3), like="Conv"),
    **_each(
        "FusedMatMul FusedMatMulActivation Gemm GemmFloat8 MatMul TransposeMatMul",
        OperatorFacts(OperatorKind.PRODUCT, operands=(0, 1)),
    ),
    "FusedGemm": OperatorFacts(OperatorKind.PRODUCT, operands=(0, 1), like="Gemm"),
    **_each(
        "DynamicQuantizeMatMul GemmFastGelu MatMulIntegerToFloat",
        OperatorFacts(OperatorKind.PRODUCT, operands=(0, 1), like="MatMul"),
    ),
    "MatMulInteger": OperatorFacts(OperatorKind.PRODUCT, in_integers=True, operands=(0, 1)),
    "MatMulInteger16": OperatorFacts(OperatorKind.PRODUCT, in_integers=True, operands=(0, 1), like="MatMul"),
    "QGemm": OperatorFacts(OperatorKind.PRODUCT, in_integers=True, operands=(0, 3), like="Gemm"),
    "QLinearMatMul": OperatorFacts(OperatorKind.PRODUCT, in_integers=True, operands=(0, 3)),
    **_each("MatMulBnb4 MatMulNBits", OperatorFacts(OperatorKind.PRODUCT, operands=(0,))),
    **_each("AttnLSTM DynamicQuantizeLSTM GRU LSTM RNN", OperatorFacts(OperatorKind.RECURRENCE, operands=(0, 1, 2))),
    **_each(
        "BeamSearch DecoderAttention DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention "
        "DynamicSparseAttention FlexAttention GatedDeltaNet GatedRelativePositionBias GreedySearch "
        "GroupQueryAttention LinearAttention MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight MatMulFpQ4 "
        "MatMulNBitsMlp MatMulNBitsQLoRA MatMulNBitsQkv MatMulPacked MoE MoEPacked PackedAttention "
        "PackedMultiHeadAttention PagedAttention QMoE QOrderedAttention QOrderedLongformerAttention QOrderedMatMul "
        "Sampling SparseAttention SparsePagedAttention SparseToDenseMatMul VarlenCausalConvWithState "
        "WhisperBeamSearch WordConvEmbedding",
        OperatorFacts(OperatorKind.UNCOUNTED),
    ),
    "LongformerAttention": OperatorFacts(OperatorKind.UNCOUNTED, operands=(0,), like="Identity"),
    **_each("NonMaxSuppression NonZero", OperatorFacts(OperatorKind.RAGGED, on_host=True)),
    **_each("Compress Unique", OperatorFacts(OperatorKind.RAGGED)),
    "TopK": OperatorFacts(OperatorKind.OTHER, on_host=True),
    **_each(
        "BiasAdd BiasDropout BiasSoftmax BitmaskBiasDropout RotaryEmbedding ScaledSiLU",
        OperatorFacts(OperatorKind.OTHER, operands=(0,), like="Identity"),
    ),
}
"""Facts by the operator's name."""


def of_kinds(*kinds: OperatorKind) -> frozenset[str]:
    """Return the names of the operators of some kinds."""
    return frozenset(name for name, facts in FACTS.items() if facts.kind in kinds)


def facts_of(node: onnx.NodeProto) -> OperatorFacts:
    """Return the entry of a node's operator; without an entry, nothing is known of the operator."""
    return FACTS.get(node.op_type, OperatorFacts(OperatorKind.OTHER))


PASSED = frozenset(name for name, facts in FACTS.items() if facts.passed)
"""ONNX operators past which ONNX Runtime moves a DequantizeLinear, and a QuantizeLinear."""
CONVOLUTIONS = {
    name: facts.operands[1]
    for name, facts in FACTS.items()
    if facts.kind is OperatorKind.CONVOLUTION and not facts.channels_last
}
"""Convolution operators with channels first, with the index of the input that holds the weights."""
PRODUCTS = {
    name: facts.operands[1]
    for name, facts in FACTS.items()
    if facts.kind is OperatorKind.PRODUCT and len(facts.operands) > 1
}
"""Matrix products of two inputs, with the index of the second."""
