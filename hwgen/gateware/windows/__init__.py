"""Sub-configurations and circuits of a line buffer, such as its banks; `hwgen.gateware.line_buffer` combines them."""
