"""Figures that the papers print, and code that computes them, for docs/figures/published.md and the tests alone."""
