"""Parts of a line buffer's configuration and circuit, such as memory banks, which ``line_buffer`` combines."""
