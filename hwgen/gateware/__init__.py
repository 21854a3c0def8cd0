"""The hardware: Amaranth components, one family a file, and the accelerator composed from them."""
