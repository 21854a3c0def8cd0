"""Command line of hwgen: a thin shell over ``hwgen.api``."""
