"""Sub-configurations of a requantiser: sum ranges, scaling recipe, biased sums, scaled products, output rounding."""
