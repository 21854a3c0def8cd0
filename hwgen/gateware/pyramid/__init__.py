"""Layers that are computed pyramid by pyramid: reuse buffers, and the tiles that windows walk over."""
