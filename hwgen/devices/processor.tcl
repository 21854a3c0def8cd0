# A project around a processing system, equal for all families: a DMA for each stream, interconnects and interrupts.

# Add the processing system and its reset, and connect its clocks.
proc add_processor {memories} {
    global mhz max_mhz clock_limit clock_pin reset_pin register_clock memory_clock
    if {$mhz > $max_mhz} {
        stop "$clock_limit of up to $max_mhz MHz, not $mhz: plan with --clock $max_mhz or less"
    }
    create_processor $memories
    add xilinx.com:ip:proc_sys_reset:5.0 reset_0
    wire $clock_pin reset_0/slowest_sync_clk
    wire $reset_pin reset_0/ext_reset_in
    wire $clock_pin $register_clock
    for {set port 0} {$port < $memories} {incr port} {
        wire $clock_pin [format $memory_clock $port]
    }
}

# Add the DMA of the input stream and of the output stream with the given index, as far as these streams exist. Return the
# DMA's masters to memory, and its interrupts.
proc add_dma {index} {
    global module senders receivers length_bits
    set cell axi_dma_$index
    set settings [list c_include_sg 0 c_sg_length_width $length_bits]
    set clocks s_axi_lite_aclk
    set masters {}
    set interrupts {}
    foreach {streams direction} [list $senders mm2s $receivers s2mm] {
        lassign [lrange $streams [expr {2 * $index}] [expr {2 * $index + 1}]] stream bits
        set has_stream [expr {$stream ne ""}]
        lappend settings c_include_$direction $has_stream
        if {$has_stream} {
            lappend settings c_m_axi_${direction}_data_width $bits
            lappend clocks m_axi_${direction}_aclk
            lappend masters $cell/M_AXI_[string toupper $direction]
            lappend interrupts $cell/${direction}_introut
            if {$direction eq "mm2s"} {
                lappend settings c_m_axis_mm2s_tdata_width $bits
                lappend joined $cell/M_AXIS_MM2S ${module}_0/$stream
            } else {
                lappend joined ${module}_0/$stream $cell/S_AXIS_S2MM
            }
        }
    }
    add xilinx.com:ip:axi_dma:7.1 $cell $settings
    clocked $cell $clocks axi_resetn
    foreach {from to} $joined {
        join_buses $from $to
    }
    return [list $masters $interrupts]
}

# Connect interrupts with the processing system.
proc add_interrupts {pins} {
    global interrupt_pin
    add xilinx.com:ip:xlconcat:2.1 interrupts_0 [list NUM_PORTS [llength $pins]]
    set index 0
    foreach pin $pins {
        wire $pin interrupts_0/In$index
        incr index
    }
    wire interrupts_0/dout $interrupt_pin
}

# Assign the registers' addresses in the processor's address space.
proc assign_registers {dmas} {
    global module processor accelerator_address dma_address
    set space [get_bd_addr_spaces $processor/Data]
    assign_bd_address -offset $accelerator_address -range 4K -target_address_space $space \
        [get_bd_addr_segs ${module}_0/s_axi_control/reg0]
    for {set index 0} {$index < $dmas} {incr index} {
        assign_bd_address -offset [format 0x%08X [expr {$dma_address + ($index << 16)}]] -range 64K \
            -target_address_space $space [get_bd_addr_segs axi_dma_$index/S_AXI_LITE/Reg]
    }
}

# Create the block design: the processing system, the IP, the DMAs and the interconnects. Each port to memory serves several
# masters if there are more masters than ports.
proc draw_design {ip} {
    global module senders receivers masters register_bus memory_bus
    set dmas [expr {max([llength $senders], [llength $receivers]) / 2}]
    set memories [expr {min($dmas + [llength $masters], 4)}]
    create_bd_design system
    add_processor $memories
    add $ip ${module}_0
    clocked ${module}_0 aclk aresetn
    set slaves ${module}_0/s_axi_control
    set interrupts ${module}_0/interrupt
    for {set index 0} {$index < $dmas} {incr index} {
        lassign [add_dma $index] buses pins
        lappend slaves axi_dma_$index/S_AXI_LITE
        lappend interrupts {*}$pins
        lappend masters_of([expr {$index % $memories}]) {*}$buses
    }
    foreach bus $masters {
        lappend masters_of([expr {$index % $memories}]) ${module}_0/$bus
        incr index
    }
    add_interconnect control_0 $register_bus $slaves
    for {set port 0} {$port < $memories} {incr port} {
        add_interconnect memory_$port $masters_of($port) [format $memory_bus $port]
    }
    add_interrupts $interrupts
    assign_registers $dmas
    assign_memory [array get masters_of]
}

# Copy the files for a PYNQ board into the folder pynq, and write the hardware description for Vitis. Return what was written.
proc collect {folder done} {
    global here name driver_files
    set target [file join $here pynq]
    file mkdir $target
    file copy -force [file join [get_property DIRECTORY $done] system_wrapper.bit] [file join $target $name.bit]
    set handoff [glob -nocomplain -directory $folder "$name.{gen,srcs}/sources_1/bd/system/hw_handoff/system.hwh"]
    if {[llength $handoff] != 1} {
        stop "the project has [llength $handoff] files system.hwh, not one"
    }
    file copy -force [lindex $handoff 0] [file join $target $name.hwh]
    foreach file_name $driver_files {
        file copy -force [file join $here $file_name] [file join $target $file_name]
    }
    write_hw_platform -fixed -include_bit -force [file join $here $name.xsa]
    return "$name.xsa, and the folder pynq"
}
