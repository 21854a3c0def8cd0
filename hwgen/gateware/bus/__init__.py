"""Wrappers that connect an accelerator or an engine to the AXI buses of a board."""
