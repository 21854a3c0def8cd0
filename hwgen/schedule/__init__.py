"""The exact schedule of an accelerator: when each beat moves, and how deep FIFOs and line buffers must be."""
