"""The command line: a thin shell over ``hwgen.api``."""
