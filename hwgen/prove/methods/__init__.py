"""Methods that prove or refute obligations: one file each, and the circuits and formulas that they work on."""
