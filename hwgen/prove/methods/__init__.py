"""Methods that discharge obligations: one file for each, with what it needs."""
