# The processing system of a Zynq UltraScale+ or a Kria module: its names in Vivado, and the commands that depend on them.

set processor zynq_ultra_ps_e_0
set clock_pin $processor/pl_clk0
set reset_pin $processor/pl_resetn0
set interrupt_pin $processor/pl_ps_irq0
set register_bus $processor/M_AXI_HPM0_FPD
set register_clock $processor/maxihpm0_fpd_aclk
# memory ports, with their number for %d
set memory_bus $processor/S_AXI_HP%d_FPD
set memory_clock $processor/saxihp%d_fpd_aclk
# addresses of the registers of the accelerator, and of the first DMA (UG1085: M_AXI_HPM0_FPD has 256 MB from 0xA0000000)
set accelerator_address 0xA0000000
set dma_address 0xA0010000
# the highest clock (DS925, PS-PL interface performance: FAXICLK), and how a refusal calls it
set max_mhz 333
set clock_limit "the AXI ports of the processing system take clocks"
# names in Vivado's report of used resources
set sites {lut "CLB LUTs" ff "CLB Registers" bram36 "Block RAM Tile" dsp DSPs}

# Create the processing system with the settings of the board, and with the clock, interrupts and memory ports of this
# design. All ports have their largest width, 128 bits. The I/O PLL makes the clock, because PYNQ sets the dividers of a
# clock, but not its PLL.
proc create_processor {memories} {
    global processor mhz
    # Vivado takes the newest version, which differs from release to release.
    add xilinx.com:ip:zynq_ultra_ps_e $processor
    apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e -config {apply_board_preset "1"} [get_bd_cells $processor]
    set settings [list PSU__FPGA_PL0_ENABLE 1 PSU__CRL_APB__PL0_REF_CTRL__SRCSEL IOPLL \
        PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ $mhz PSU__USE__IRQ0 1 \
        PSU__USE__M_AXI_GP0 1 PSU__MAXIGP0__DATA_WIDTH 128 PSU__USE__M_AXI_GP1 0 PSU__USE__M_AXI_GP2 0]
    for {set port 0} {$port < $memories} {incr port} {
        set number [expr {$port + 2}]
        lappend settings PSU__USE__S_AXI_GP$number 1 PSU__SAXIGP${number}__DATA_WIDTH 128
    }
    configure $processor $settings
}

# Assign the addresses of memory: to each master, which has addresses of 32 bits, the first 2 GB. On-chip memory, flash
# and memory above 4 GB are excluded, so that Vivado does not warn of them. What can't be excluded is not reached either.
proc assign_memory {masters_of} {
    global processor
    foreach {port masters} $masters_of {
        set segments $processor/SAXIGP[expr {$port + 2}]
        set memory HP${port}_DDR_LOW
        foreach master $masters {
            set space [get_bd_addr_spaces [string map {/M_AXI_ /Data_} $master]]
            assign_bd_address -target_address_space $space [get_bd_addr_segs $segments/$memory]
            foreach segment [get_bd_addr_segs $segments/*] {
                if {![string match */$memory $segment]} {
                    exclude_bd_addr_seg -quiet -target_address_space $space $segment
                }
            }
        }
    }
}
