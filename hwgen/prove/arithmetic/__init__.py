"""Obligations of values: multipliers, sums of products, requantisers and other operations on values."""
