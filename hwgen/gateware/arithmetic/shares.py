"""Fixed point of sums by tables that are written at run time.

A table holds, for each value of an operand, its share of the sum. Another one holds, for each value of the 8 low bits
of a sum's whole part, the least fraction that is rounded up.
"""

from __future__ import annotations

#: Bits of a share behind its binary point.
FRACTION = 24
#: Bits of a share, signed: the width of a block RAM.
SHARE_BITS = 36
#: Bits of the whole part of the sum of two shares, signed.
WHOLE_BITS = SHARE_BITS + 1 - FRACTION
