"""hwgen: from a trained, quantised CNN to a verified FPGA accelerator."""
