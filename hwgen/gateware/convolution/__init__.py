"""Sub-configurations of a convolution's arithmetic, such as its chains; `hwgen.gateware.multiply` combines them."""
