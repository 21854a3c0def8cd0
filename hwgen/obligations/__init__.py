"""Proof obligations and the observers that they are made of: a floor below the components that state them."""
