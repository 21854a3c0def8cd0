"""Obligations of line buffers and of pyramids' buffers: every window reads the pixels that it covers."""
