"""Obligations of components that carry streams: FIFOs, width converters, serialisers, joins and guards."""
