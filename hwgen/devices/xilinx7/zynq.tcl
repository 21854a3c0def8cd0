# The processing system of a Zynq-7000: its names in Vivado, and the commands that depend on them.

set processor processing_system7_0
set clock_pin $processor/FCLK_CLK0
set reset_pin $processor/FCLK_RESET0_N
set interrupt_pin $processor/IRQ_F2P
set register_bus $processor/M_AXI_GP0
set register_clock $processor/M_AXI_GP0_ACLK
# memory ports, with their number for %d
set memory_bus $processor/S_AXI_HP%d
set memory_clock $processor/S_AXI_HP%d_ACLK
# addresses of the registers of the accelerator, and of the first DMA
set accelerator_address 0x43C00000
set dma_address 0x40400000
# the highest clock that Vivado's dialog of the processing system accepts, and how a refusal calls it
set max_mhz 250
set clock_limit "the processing system makes clocks"
# names in Vivado's report of used resources
set sites {lut "Slice LUTs" ff "Slice Registers" bram36 "Block RAM Tile" dsp DSPs}

# Create the processing system with the settings of the board, and with the clock, interrupts and memory ports of this
# design.
proc create_processor {memories} {
    global processor mhz
    add xilinx.com:ip:processing_system7:5.5 $processor
    apply_bd_automation -rule xilinx.com:bd_rule:processing_system7 \
        -config {make_external "FIXED_IO, DDR" apply_board_preset "1" Master "Disable" Slave "Disable"} \
        [get_bd_cells $processor]
    set settings [list PCW_FPGA0_PERIPHERAL_FREQMHZ $mhz PCW_USE_M_AXI_GP0 1 PCW_USE_FABRIC_INTERRUPT 1 PCW_IRQ_F2P_INTR 1]
    for {set port 0} {$port < $memories} {incr port} {
        lappend settings PCW_USE_S_AXI_HP$port 1
    }
    configure $processor $settings
}

# Assign the addresses of memory. Vivado does so for all masters.
proc assign_memory {masters_of} {
    assign_bd_address
}
