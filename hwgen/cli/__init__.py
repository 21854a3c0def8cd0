"""Command line of hwgen, one module per command, on top of ``hwgen.api``."""
