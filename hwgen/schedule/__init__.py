"""Exact schedule of an accelerator: the cycle of each transfer, FIFO depths and line-buffer rows."""
