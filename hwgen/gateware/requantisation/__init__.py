"""Parts of requantisation: ranges of sums, recipe of the scaling, biased sums, products, rounding of outputs."""
