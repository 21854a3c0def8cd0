"""Built-in networks for tests and exploration."""
