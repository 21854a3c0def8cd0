"""Arithmetic circuits that components share: adder graphs, Booth rows, chains of DSP slices, scaling and saturation.

Their constants are known at build time, or written at run time for the engine and for layers with run-time weights.


"""
