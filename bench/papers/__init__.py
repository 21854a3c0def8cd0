"""The figures that the papers print, and what computes them: for docs/published.md and the tests, for no plan."""
