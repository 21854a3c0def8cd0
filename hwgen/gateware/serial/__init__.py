"""Serial link: a serial port (UART) that carries an accelerator's streams in packets with checksums."""
