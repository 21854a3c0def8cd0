"""Search for a layer's blocking: loop order and block sizes that move the fewest words between memories.

`problem` states a layer's loops, `nest` a blocked order of these loops, and `count` the words that any buffer fetches
in it. The tests compare the counts with a plain simulation. Three searches build on the counts: one on-chip buffer with
inter-tile reuse (`peemen`), double-buffered tiles over a DMA (`cecconi`, `timing`), and whole memory hierarchies
(`search`, `yang`).
"""
