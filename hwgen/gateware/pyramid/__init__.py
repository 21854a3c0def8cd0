"""Components of a pyramid accelerator, which computes fused layers tile by tile: reuse buffers and tile buffers."""
