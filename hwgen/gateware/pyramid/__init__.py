"""Components of layers that are computed pyramid by pyramid: reuse buffers and tile buffers."""
