"""Parts of a line buffer, which reads the windows of a feature map: `hwgen.gateware.line_buffer` puts them together."""
