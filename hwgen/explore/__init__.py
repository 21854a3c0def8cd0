"""The whole trade-off of a network before any plan: groupings and unrollings, as the papers count them."""
