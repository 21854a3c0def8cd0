# PCI Express with AMD's XDMA (PG195), and DDR3 by the board's own preset: names in Vivado, and the commands that add them.
# Public block designs with these IPs have the names of pins and parameters, such as koheron/koheron-sdk (XDMA on the 7
# series) and esa-tu-darmstadt/tapasco (VC709). No Vivado has run this script.

set host xdma_0
set memory mig_7series_0
# The design's clock is made of XDMA's, which has 250 MHz with eight lanes (PG195).
set clock_pin clock_0/clk_out1
set host_mhz 250
# clock and reset of the cells that have others than the design, and of the two sides of converters between streams
set domains($host) [list $host/axi_aclk $host/axi_aresetn]
set domains($memory) [list $memory/ui_clk reset_1/peripheral_aresetn]
set domains(host_side) [list $host/axi_aclk reset_2/peripheral_aresetn]
set domains(design_side) [list $clock_pin reset_3/peripheral_aresetn]
# names in Vivado's report of used resources
set sites {lut "Slice LUTs" ff "Slice Registers" bram36 "Block RAM Tile" dsp DSPs}

# Add a reset that is synchronous to a clock. It lasts until the clock is stable.
proc add_reset {cell clock reset stable} {
    add xilinx.com:ip:proc_sys_reset:5.0 $cell {C_AUX_RESET_HIGH 1}
    wire $clock $cell/slowest_sync_clk
    wire $reset $cell/ext_reset_in
    wire $stable $cell/dcm_locked
}

# Add XDMA with its pins on the connector, and make the design's clock and reset. An accelerator has a channel for each
# stream, an engine one each way to memory.
proc add_host {} {
    global host host_mhz mhz clock_pin senders receivers masters link_speed data_bits lanes pcie_block
    add xilinx.com:ip:util_ds_buf reference_0 {C_BUF_TYPE IBUFDSGTE}
    add xilinx.com:ip:xlconstant no_interrupt_0 {CONST_WIDTH 1 CONST_VAL 0}
    add xilinx.com:ip:xdma $host [list pcie_blk_locn $pcie_block pl_link_cap_max_link_width X$lanes \
        pl_link_cap_max_link_speed $link_speed axi_data_width ${data_bits}_bit axisten_freq $host_mhz \
        xdma_axi_intf_mm [expr {[llength $masters] ? "AXI_Memory_Mapped" : "AXI_Stream"}] \
        xdma_rnum_chnl [expr {max([llength $senders] / 2, 1)}] xdma_wnum_chnl [expr {max([llength $receivers] / 2, 1)}] \
        axilite_master_en true axilite_master_size 1 axilite_master_scale Megabytes \
        pciebar2axibar_axil_master 0x00000000 cfg_mgmt_if false]
    create_bd_intf_port -mode Master -vlnv xilinx.com:interface:pcie_7x_mgt_rtl:1.0 pcie
    create_bd_intf_port -mode Slave -vlnv xilinx.com:interface:diff_clock_rtl:1.0 pcie_clock
    create_bd_port -dir I -type rst pcie_reset_n
    set_property CONFIG.FREQ_HZ 100000000 [get_bd_intf_ports pcie_clock]
    set_property CONFIG.POLARITY ACTIVE_LOW [get_bd_ports pcie_reset_n]
    connect_bd_intf_net [get_bd_intf_ports pcie] [get_bd_intf_pins $host/pcie_mgt]
    connect_bd_intf_net [get_bd_intf_ports pcie_clock] [get_bd_intf_pins reference_0/CLK_IN_D]
    connect_bd_net [get_bd_ports pcie_reset_n] [get_bd_pins $host/sys_rst_n]
    wire reference_0/IBUF_OUT $host/sys_clk
    wire no_interrupt_0/dout $host/usr_irq_req
    add xilinx.com:ip:clk_wiz clock_0 [list PRIM_SOURCE No_buffer PRIM_IN_FREQ $host_mhz CLKOUT1_REQUESTED_OUT_FREQ $mhz \
        USE_RESET true RESET_TYPE ACTIVE_LOW USE_LOCKED true]
    wire $host/axi_aclk clock_0/clk_in1
    wire $host/axi_aresetn clock_0/resetn
    add_reset reset_0 $clock_pin $host/axi_aresetn clock_0/locked
}

# Add the controller of the board's DDR3 memory, as the board's preset has it, and connect the engine and XDMA with it.
proc add_memory {buses} {
    global host memory memory_interface
    add xilinx.com:ip:mig_7series $memory
    apply_bd_automation -rule xilinx.com:bd_rule:mig_7series -config [list Board_Interface $memory_interface] \
        [get_bd_cells $memory]
    wire reset_0/peripheral_reset $memory/sys_rst
    add_reset reset_1 $memory/ui_clk $memory/ui_clk_sync_rst $memory/mmcm_locked
    wire reset_1/peripheral_aresetn $memory/aresetn
    add_interconnect memory_0 [list $host/M_AXI {*}$buses] $memory/S_AXI
    set segment [get_bd_addr_segs $memory/memmap/memaddr]
    foreach bus [list $host/M_AXI {*}$buses] {
        assign_bd_address -offset 0x00000000 -range [get_property RANGE $segment] \
            -target_address_space [get_bd_addr_spaces $bus] $segment
    }
}

# Add a register that resets the converters of all streams while it is 1. They hold words when a run ends early, which the
# driver must drop, as an AXI DMA does by its own reset.
proc add_clear {} {
    global host clock_pin
    add xilinx.com:ip:axi_gpio clear_0 {C_GPIO_WIDTH 1 C_ALL_OUTPUTS 1}
    clocked clear_0 s_axi_aclk s_axi_aresetn
    add_reset reset_2 $host/axi_aclk $host/axi_aresetn clock_0/locked
    add_reset reset_3 $clock_pin $host/axi_aresetn clock_0/locked
    wire clear_0/gpio_io_o reset_2/aux_reset_in
    wire clear_0/gpio_io_o reset_3/aux_reset_in
}

# Add the converters between a stream of XDMA in its clock and one of the accelerator in the design's, which is narrower.
proc add_stream {name from to bits} {
    global host data_bits
    set bytes [expr {$data_bits / 8}]
    set sends [string match $host/* $from]
    add xilinx.com:ip:axis_clock_converter clock_$name [list TDATA_NUM_BYTES $bytes HAS_TKEEP 1 HAS_TLAST 1]
    foreach {side domain} [expr {$sends ? "s host_side m design_side" : "s design_side m host_side"}] {
        clocked clock_$name ${side}_axis_aclk ${side}_axis_aresetn $domain
    }
    set cells clock_$name
    if {$bits != $data_bits} {
        set widths [expr {$sends ? [list $bytes [expr {$bits / 8}]] : [list [expr {$bits / 8}] $bytes]}]
        add xilinx.com:ip:axis_dwidth_converter width_$name [list S_TDATA_NUM_BYTES [lindex $widths 0] \
            M_TDATA_NUM_BYTES [lindex $widths 1] HAS_TKEEP 1 HAS_TLAST 1]
        clocked width_$name aclk aresetn design_side
        set cells [expr {$sends ? "clock_$name width_$name" : "width_$name clock_$name"}]
    }
    foreach cell $cells {
        join_buses $from $cell/S_AXIS
        set from $cell/M_AXIS
    }
    join_buses $from $to
}

# Create the block design: XDMA, the IP, and the memory of an engine or the streams of an accelerator.
proc draw_design {ip} {
    global host module senders receivers masters
    create_bd_design system
    add_host
    add $ip ${module}_0
    clocked ${module}_0 aclk aresetn
    set registers [list ${module}_0/s_axi_control reg0]
    if {![llength $masters]} {
        add_clear
        lappend registers clear_0/S_AXI Reg
    }
    set slaves {}
    foreach {bus block} $registers {
        lappend slaves $bus
    }
    add_interconnect control_0 $host/M_AXI_LITE $slaves
    set offset 0
    foreach {bus block} $registers {
        assign_bd_address -offset [format 0x%08X $offset] -range 4K \
            -target_address_space [get_bd_addr_spaces $host/M_AXI_LITE] [get_bd_addr_segs $bus/$block]
        incr offset 0x1000
    }
    set index 0
    foreach {stream bits} $senders {
        add_stream h2c_$index $host/M_AXIS_H2C_$index ${module}_0/$stream $bits
        incr index
    }
    set index 0
    foreach {stream bits} $receivers {
        add_stream c2h_$index ${module}_0/$stream $host/S_AXIS_C2H_$index $bits
        incr index
    }
    if {[llength $masters]} {
        set buses {}
        foreach bus $masters {
            lappend buses ${module}_0/$bus
        }
        add_memory $buses
    }
}

# Copy the files for the PC into the folder xdma, and say so.
proc collect {folder done} {
    global here name driver_files
    set target [file join $here xdma]
    file mkdir $target
    file copy -force [file join [get_property DIRECTORY $done] system_wrapper.bit] [file join $target $name.bit]
    foreach file_name $driver_files {
        file copy -force [file join $here $file_name] [file join $target $file_name]
    }
    return "the folder xdma"
}
