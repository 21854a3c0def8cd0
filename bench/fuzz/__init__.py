"""Damaged input of every kind that hwgen reads: see `__main__`."""
