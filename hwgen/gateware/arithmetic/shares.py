"""Fixed-point format in which run-time tables store each operand's share of a sum of two quantised maps.

One table stores the share of the sum for each value of an operand. Another table stores, for each value of the 8 low
bits of a sum's whole part, the smallest fraction that is rounded up.
"""

from __future__ import annotations

#: Number of fraction bits of an operand's share of a sum.
FRACTION = 24
#: Width in bits, with sign, of an operand's share of a sum: the width of a block RAM.
SHARE_BITS = 36
#: Width in bits, with sign, of the whole part of the sum of two operands' shares.
WHOLE_BITS = SHARE_BITS + 1 - FRACTION
