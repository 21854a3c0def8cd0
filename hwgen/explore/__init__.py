"""Exploration of a network before planning: costs of all layer groupings and unroll factors, as in the papers."""
