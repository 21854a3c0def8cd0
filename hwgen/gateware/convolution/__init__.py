"""Parts of the configuration of the arithmetic of a convolution: `hwgen.gateware.multiply` puts them together."""
