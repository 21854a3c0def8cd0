"""Hardware of the accelerators: Amaranth components for layers, arithmetic, buffers and streams, a family per file."""
