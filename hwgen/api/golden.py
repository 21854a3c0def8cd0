"""Golden model: a model's integer network, with outputs computed in NumPy exactly as in the hardware."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwgen.api.arrays import Inputs, Values, model_options
from hwgen.arguments import checked, shown
from hwgen.errors import InputError
from hwgen.printable import counted

if TYPE_CHECKING:
    from hwgen.network.graph import Network
    from hwgen.network.maps import FeatureMap
    from hwgen.network.onnx.layers import RuntimeLayers

_MAX_VALUES = 1 << 32
"""Maximum number of values in the frames that `GoldenModel.random_frames` makes at once."""


@dataclass(frozen=True, repr=False)
class GoldenModel:
    """Model read as a network of integer layers: its inputs and outputs, and methods that compute the outputs."""

    network: Network
    """Network of the model: its integer layers, with their weights and maps."""

    def __repr__(self) -> str:
        taken, given = (" and ".join(map(str, maps)) for maps in (self.network.input_maps, self.network.output_maps))
        return f"<Model {self.name}: {taken} to {given}, {counted(len(self.network.layers), 'layer')}>"

    @property
    def name(self) -> str:
        """Name of the model: its file's name without the ending, or the built-in network's name."""
        return self.network.name

    @property
    def input(self) -> FeatureMap:
        """Feature map (`FeatureMap`) of the hardware's input: shape, integer type, zero point and scale.

        Raises
        ------
        InputError
            If the model has several inputs; ``inputs`` has them all.
        """
        if len(self.network.inputs) > 1:
            raise InputError(f"{self.name} has {len(self.network.inputs)} inputs: ask for inputs")
        return self.network.input

    @property
    def inputs(self) -> dict[str, FeatureMap]:
        """Dictionary of each hardware input's `FeatureMap` by name: shape, type, zero point, scale; in model order."""
        return dict(zip(self.network.input_names, self.network.input_maps, strict=True))

    @property
    def output(self) -> FeatureMap:
        """Feature map (`FeatureMap`) of the hardware's output, the last integer tensor: shape, type, scale.

        Raises
        ------
        InputError
            If the hardware has several outputs; ``outputs`` has them all.
        """
        if len(self.network.output_names) > 1:
            raise InputError(f"{self.name} has {len(self.network.output_names)} outputs: ask for outputs")
        return self.network.output

    @property
    def outputs(self) -> dict[str, FeatureMap]:
        """Dictionary of each hardware output's `FeatureMap` by name: shape, type, zero point, scale; in model order."""
        return dict(zip(self.network.output_names, self.network.output_maps, strict=True))

    @property
    def host(self) -> dict[str, Any]:
        """Dictionary, as in ``plan.json``: the hardware's inputs and outputs, and the host's operators.

        The keys are ``input`` and ``output`` (``inputs`` and ``outputs`` where there are several), each with name,
        shape, type, scale and zero point, and ``host``.
        """
        from hwgen.network import host

        return host.describe(self.network)

    @checked
    def prepare(self, x: Inputs) -> Values:
        """Return frames (array, or arrays by name) in the model's integer type: floats quantised, integers unchanged.

        Parameters
        ----------
        x : ndarray, or sequence or dict of ndarray
            Frames in the shape of the model's input: ``(n, C, H, W)``, ``(n, H, W, C)``, ``(n, features)`` and so on.
            For a model with several inputs, a sequence of arrays in the inputs' order, or a dict by the inputs' names.
            ``golden`` and ``simulate`` accept the same.

        Returns
        -------
        ndarray, or dict of str to ndarray
            Integers ``(n, C, H, W)``, as the hardware reads them. If it has several inputs, a dict by their names.

        Raises
        ------
        InputError
            If shape or type do not fit, or a value is not a number.
        """
        from hwgen.network import quantise

        made = quantise.prepare_inputs(self.network, quantise.through_head(self.network, x))
        return made[0] if len(made) == 1 else dict(zip(self.network.input_names, made, strict=True))

    @checked
    def random_frames(self, count: int, seed: int = 0) -> Values:
        """Return ``count`` random frames (array, or arrays by name): integers uniform over the model's whole type.

        Equal ``seed`` give equal frames. An input that only the host reads has float32 values of a normal distribution.

        Returns
        -------
        ndarray, or dict of str to ndarray
            Frames in the model's shape, such as ``(count, C, H, W)`` or ``(count, features)``. If the model has several
            inputs, a dict by their names.

        Raises
        ------
        InputError
            If ``count`` is not a positive integer, or there would be more than 2**32 values.
        """
        from hwgen.network import host, quantise

        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise InputError(f"count of random frames must be a positive integer, not {shown(count)}")
        ends = quantise.given_ends(self.network)
        values = sum(math.prod(end.shape) for end in ends)
        if count * values > _MAX_VALUES:
            raise InputError(
                f"{count:,} random frames of {values:,} values are too many: "
                f"at most {_MAX_VALUES // values:,} of this model"
            )
        generator, taken, frames = np.random.default_rng(seed), host.taken(self.network), {}
        for end in ends:
            shape = (count, *end.shape)
            if end.name in taken:
                type_ = taken[end.name][1].type
                frames[end.name] = generator.integers(type_.minimum, type_.maximum, shape, type_.dtype, endpoint=True)
            elif np.dtype(end.dtype).kind in "iu":
                limits = np.iinfo(end.dtype)
                frames[end.name] = generator.integers(limits.min, limits.max, shape, end.dtype, endpoint=True)
            else:  # only the host reads this input
                frames[end.name] = generator.normal(size=shape).astype(end.dtype)
        return frames if len(frames) > 1 else next(iter(frames.values()))

    @checked
    def golden(self, x: Inputs, *, integers: bool = False) -> Values:
        """Return the model's outputs (array, or arrays by name), computed in NumPy exactly as in the hardware.

        Parameters
        ----------
        x : ndarray, or sequence or dict of ndarray
            Frames as for ``prepare``.
        integers : bool
            Whether to return the last integer tensor, the hardware's output, instead of the model's own output.

        Returns
        -------
        ndarray, or dict of str to ndarray
            ``(n, ...)``, in the type and shape of the model's own output: float32 where the model ends in
            DequantizeLinear or Softmax, which ONNX Runtime computes here. With ``integers``, in the type and shape of
            the last integer tensor. If there are several outputs, a dict of all of them, by the model's names. An
            output whose number of rows depends on the frame's values, as after NonMaxSuppression, is an array of ``n``
            arrays.

        Raises
        ------
        InputError
            If the frames do not fit the model.
        ModelError
            If ONNX Runtime can't run the operators after the last integer tensor.
        """
        from hwgen.network import golden

        prepared = self._prepared(x)
        maps = golden.outputs(self.network, prepared)
        return self._integers(maps) if integers else self._outputs(maps, x, prepared)

    @checked
    def golden_parts(self, x: Inputs, *, integers: bool = False) -> Iterator[Values]:
        """Yield the golden model's outputs for one part of the frames after another, if all would exceed memory.

        It has the parameters of `golden`. All frames are checked before the first part is computed.

        Yields
        ------
        ndarray, or dict of str to ndarray
            Outputs of the next frames, as `golden` returns them.

        Raises
        ------
        InputError
            If the frames do not fit the model.
        ModelError
            If ONNX Runtime can't run the operators after the last integer tensor.
        """
        from hwgen.network import golden, quantise

        given = quantise.checked_frames(self.network, x)
        for begin, part in golden.frame_parts(given, self.network.ends.batch or 1):
            prepared = self._prepared(part)
            maps = golden.outputs(self.network, prepared, begin, len(given[0]))
            yield self._integers(maps) if integers else self._outputs(maps, part, prepared)

    @checked
    def complete(self, maps: Sequence[np.ndarray], x: Inputs) -> Values:
        """Return the ONNX model's own outputs, arrays computed on the host from the hardware's output maps.

        Parameters
        ----------
        maps : sequence of ndarray
            Integers ``(n, C, H, W)`` of each output of the hardware, in order.
        x : ndarray, or sequence or dict of ndarray
            Frames that the hardware computed the maps, as for `prepare`.

        Returns
        -------
        ndarray, or dict of str to ndarray
            Outputs as `golden` returns them.

        Raises
        ------
        InputError
            If the frames do not fit the model, or the maps do not fit the frames.
        ModelError
            If ONNX Runtime can't run the operators after the last integer tensor.
        """
        prepared = self._prepared(x)
        self._check_maps(maps, len(prepared[0]))
        return self._outputs(maps, x, prepared)

    def _check_maps(self, maps: Sequence[np.ndarray], count: int) -> None:
        """Raise InputError unless maps fit the hardware's outputs for ``count`` frames in number, type and shape.

        Raises
        ------
        InputError
            If they do not fit.
        """
        expected = self.network.output_maps
        if len(maps) != len(expected):
            raise InputError(f"maps must be {len(expected)}, one for each output of the hardware, not {len(maps)}")
        for index, (values, wanted) in enumerate(zip(maps, expected, strict=True)):
            if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
                shown = values.dtype if isinstance(values, np.ndarray) else type(values).__name__
                raise InputError(f"map {index} must be an array of integers, not {shown}")
            if values.shape != (count, *wanted.shape):
                raise InputError(f"map {index} must have shape {(count, *wanted.shape)}, not {values.shape}")

    @property
    def output_names(self) -> tuple[str, ...]:
        """Tuple of names of the model's own outputs; ``outputs`` has the names of the hardware's outputs as keys."""
        from hwgen.network import host

        return host.names(self.network)

    @property
    def ragged_outputs(self) -> frozenset[str]:
        """Set of names of the outputs whose number of rows depends on a frame's values, as after NonMaxSuppression."""
        from hwgen.network import host

        return host.ragged(self.network)

    def _prepared(self, x: Inputs) -> tuple[np.ndarray, ...]:
        """Return a tuple of the frames as integer arrays ``(n, C, H, W)``, quantised if floats, one per hardware input.

        Returns
        -------
        tuple of numpy.ndarray
            Integers, one array per input of the hardware.
        """
        from hwgen.network import quantise

        return quantise.prepare_inputs(self.network, quantise.through_head(self.network, x))

    def _outputs(self, maps: Sequence[np.ndarray], x: Inputs, prepared: Sequence[np.ndarray]) -> Values:
        """Return the ONNX model's own outputs, computed by the host's operators from the hardware's output maps.

        If the model has several outputs, they are a dict by name.

        Returns
        -------
        numpy.ndarray or dict
            Outputs in the model's type and shape.
        """
        from hwgen.network import host, quantise

        frames = quantise.by_input(self.network, quantise.through_head(self.network, x))
        made = host.all_outputs(self.network, maps, frames, prepared)
        return made[0] if len(made) == 1 else dict(zip(self.output_names, made, strict=True))

    def _integers(self, maps: Sequence[np.ndarray]) -> Values:
        """Return the ONNX model's last integer tensors, arrays in the model's shapes, from the hardware's output maps.

        If the hardware has several outputs, they are a dict by name.

        Returns
        -------
        numpy.ndarray or dict
            Integers in the shape of the model's outputs.
        """
        from hwgen.network import host

        made = [host.integers(self.network, values, output_index) for output_index, values in enumerate(maps)]
        return made[0] if len(made) == 1 else dict(zip(self.network.output_names, made, strict=True))

    @checked
    def runtime(
        self,
        source: str | Path,
        calibration: Inputs | str | Path | None = None,
        bits: int | None = None,
        **options: Any,
    ) -> RuntimeLayers:
        """Return `RuntimeLayers`: an ONNX Runtime session that gives every layer's output, for `Design.compare`.

        It has the parameters of `load`.

        Returns
        -------
        RuntimeLayers
            ONNX Runtime on the whole model, with the tensors between the layers as outputs, too.

        Raises
        ------
        ModelError
            If the file is not a model, or ONNX Runtime can't run it layer by layer.
        InputError
            If an option is unknown, or the calibration data does not fit, or nothing is to be quantised.
        """
        from hwgen import network

        return network.runtime_layers(str(source), self.network, model_options(calibration, bits, options))
