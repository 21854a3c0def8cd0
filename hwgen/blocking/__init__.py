"""Schedules: in which order and in which blocks a layer is walked so that least is moved.

`problem` states a layer's loops, `nest` a blocked order of them, and `count` what any buffer then fetches; `reference`
is the plain simulation that the counts are tested against. On these stand one on-chip buffer with inter-tile reuse
(`peemen`), double-buffered tiles over a DMA (`cecconi`, `timing`), and whole memory hierarchies (`search`, `yang`).
"""
