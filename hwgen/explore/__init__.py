"""Trade-off of a network before planning: all groupings and unroll factors, counted as in the papers."""
