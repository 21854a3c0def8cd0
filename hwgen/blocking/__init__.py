"""Search for a layer's loop orders and block sizes (blockings) that move the fewest words between memory and buffers.

`problem` states a layer's loops, `nest` a blocked order of these loops, and `count` the words that any buffer fetches
in it. The tests compare the counts with a plain simulation. Three searches build on the counts: one on-chip buffer with
inter-tile reuse (`peemen`), double-buffered tiles over a DMA (`cecconi`, `timing`), and whole memory hierarchies
(`search`, `yang`).
"""
