"""Hardware: Amaranth components, and the accelerator that they form. Each file contains one family of components."""
