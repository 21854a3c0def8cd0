"""Exact schedule of an accelerator: the cycle of each beat's transfer, FIFO depths, and line buffer rows."""
