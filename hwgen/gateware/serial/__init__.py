"""Serial link: an accelerator's streams behind a serial port (UART), in packets with checksums."""
