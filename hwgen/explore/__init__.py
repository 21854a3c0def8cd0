"""Exploration of a network before planning: costs of all layer groupings and unroll factors, counted as in the
papers.
"""
