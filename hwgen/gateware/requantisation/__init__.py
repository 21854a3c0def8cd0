"""Parts of a requantiser's configuration: ranges of sums, scaling recipe, biased sums, scaled products, rounding."""
