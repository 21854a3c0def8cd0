"""The compute core of the engine: from words in its buffers to complete sums."""

from __future__ import annotations

from amaranth import signed
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Member, Out

from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.job import Compute, Drain

#: Width of the counts of jobs; a program has fewer jobs than that counts to.
COUNT_BITS = 24


def map_write(config: EngineConfig) -> data.StructLayout:
    """A word of 8 channels into a bank of the map buffer."""
    return data.StructLayout(
        {"bank": range(config.pixels), "word": range(config.map_words), "data": data.ArrayLayout(signed(8), LANES)}
    )


def weight_write(config: EngineConfig) -> data.StructLayout:
    """The weights of a block of 8 maps in a step."""
    return data.StructLayout(
        {"step": range(config.weight_steps), "block": range(config.blocks), "data": data.ArrayLayout(signed(8), LANES)}
    )


def drain_beat(config: EngineConfig) -> data.StructLayout:
    """Eight complete sums of a pixel, those of a block of maps, and what becomes of them.

    ``address`` is their word's in the output buffer, ``parameter`` that of their block in the buffer of parameters.
    In an addition (``add``) the sums of blocks 0 and 1 of a pixel follow each other, the latter with ``second``; both
    have the address of the one word that they give. A pixel's address is that before it is pooled, if it is: ``o_base +
    b * o_plane + p`` of block ``b`` and pixel ``p``. ``pixel_end`` marks the last block of a pixel, ``last`` the job's
    last beat. The other fields are those of `Drain`.
    """
    return data.StructLayout(
        {
            "sums": data.ArrayLayout(signed(config.sum_bits), LANES),
            "address": 16,
            "parameter": 8,
            "zero_point": signed(8),
            "low": signed(8),
            "high": signed(8),
            "add": 1,
            "second": 1,
            "table": 1,
            "pool": 1,
            "columns": 10,
            "pixel_end": 1,
            "last": 1,
        }
    )


def core_ports(config: EngineConfig) -> dict[str, Member]:
    """Of the core. Counts are those of jobs, modulo ``2**COUNT_BITS``; streams without ready always take.

    ``finished`` pulses when the last word of a job with beats lies in the output buffer, in the order of the jobs.
    """
    return {
        "compute": In(stream.Signature(Compute.layout())),
        "drain": In(stream.Signature(Drain.layout())),
        "map_write": In(stream.Signature(map_write(config), always_ready=True)),
        "weight_write": In(stream.Signature(weight_write(config), always_ready=True)),
        "loaded": In(COUNT_BITS),
        "stored": In(COUNT_BITS),
        "finished": In(1),
        "computed": Out(COUNT_BITS),
        "drained": Out(COUNT_BITS),
        "beats": Out(stream.Signature(drain_beat(config), always_ready=True)),
    }
