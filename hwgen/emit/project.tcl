# The rest of the script is equal for all designs and devices.

proc stop {reason} {
    error "project.tcl: $reason"
}

# Return the options of -tclargs as a dictionary, with defaults for missing ones.
proc parse_options {arguments} {
    set options {--jobs 2 --to bitstream}
    foreach {option value} $arguments {
        if {![dict exists $options $option]} {
            stop "accepts --jobs N and --to design|bitstream after -tclargs, not $arguments"
        }
        dict set options $option $value
    }
    if {![regexp {^[1-9]\d*$} [dict get $options --jobs]]} {
        stop "--jobs must be a positive number, not [dict get $options --jobs]"
    }
    if {[dict get $options --to] ni {design bitstream}} {
        stop "--to must be design or bitstream, not [dict get $options --to]"
    }
    return $options
}

# Return the name of Vivado's board files, which have the settings of the board's processing system.
proc find_board {} {
    global board board_files board_part
    foreach pattern $board_files {
        set matches [get_board_parts -quiet -latest_file_version $pattern]
        if {[llength $matches]} {
            set match [lindex $matches end]
            set part [get_property PART_NAME $match]
            if {$part ne $board_part} {
                stop "[get_property NAME $match] is for the part $part, but the design for $board_part"
            }
            return [get_property NAME $match]
        }
    }
    stop "this Vivado has no files of the board $board ([join $board_files {, }]); get them by Tools, Vivado Store, Boards"
}

# Create the project, and return its folder.
proc begin_project {files root} {
    global here name board_part
    set folder [file join $here project]
    if {[file exists $folder] && ![file isfile [file join $folder $name.xpr]]} {
        stop "$folder exists and is not a project of $name; move it away"
    }
    create_project -force -part $board_part $name $folder
    set_property board_part $files [current_project]
    set_property ip_repo_paths $root [current_project]
    update_ip_catalog
    return $folder
}

# Set parameters of a cell in the block design.
proc configure {cell settings} {
    set properties {}
    foreach {key value} $settings {
        lappend properties CONFIG.$key $value
    }
    set_property -dict $properties [get_bd_cells $cell]
}

# Add an IP to the block design.
proc add {vlnv cell {settings {}}} {
    create_bd_cell -type ip -vlnv $vlnv $cell
    if {[llength $settings]} {
        configure $cell $settings
    }
}

proc wire {from to} {
    connect_bd_net [get_bd_pins $from] [get_bd_pins $to]
}

proc join_buses {from to} {
    connect_bd_intf_net [get_bd_intf_pins $from] [get_bd_intf_pins $to]
}

# Connect the clock and reset pins of a cell. The whole design has one clock and one reset.
proc clocked {cell clocks resets} {
    global clock_pin
    foreach pin $clocks {
        wire $clock_pin $cell/$pin
    }
    foreach pin $resets {
        wire reset_0/peripheral_aresetn $cell/$pin
    }
}

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

# Add an interconnect between masters and slaves, whose ports are numbered in order.
proc add_interconnect {cell masters slaves} {
    global clock_pin
    add xilinx.com:ip:axi_interconnect:2.1 $cell [list NUM_SI [llength $masters] NUM_MI [llength $slaves]]
    wire $clock_pin $cell/ACLK
    wire reset_0/interconnect_aresetn $cell/ARESETN
    foreach {side buses} [list S $masters M $slaves] {
        set index 0
        foreach bus $buses {
            set port [format %s%02d $side $index]
            clocked $cell ${port}_ACLK ${port}_ARESETN
            if {$side eq "S"} {
                join_buses $bus $cell/${port}_AXI
            } else {
                join_buses $cell/${port}_AXI $bus
            }
            incr index
        }
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
    validate_bd_design
    save_bd_design
    make_wrapper -top -import [get_files system.bd]
    set_property top system_wrapper [current_fileset]
    update_compile_order -fileset sources_1
}

# Synthesise and implement the design, write the bitstream, and return Vivado's run.
proc run {jobs} {
    launch_runs impl_1 -to_step write_bitstream -jobs $jobs
    wait_on_run impl_1
    set done [get_runs impl_1]
    if {[get_property PROGRESS $done] ne "100%"} {
        stop "no bitstream: [get_property STATUS $done]; the project says more"
    }
    open_run impl_1
    return $done
}

# Return the number of used sites of one type in Vivado's report.
proc used {report site} {
    if {![regexp -line "^\\| *$site\\*? *\\| *(\\d+(?:\\.\\d+)?) *\\|" $report -> count]} {
        stop "Vivado's report of what is used has no $site"
    }
    return $count
}

# Return the used resources of some cells, or of all cells, as JSON.
proc utilisation {cells} {
    global sites
    set limits [expr {[llength $cells] ? [list -cells $cells] : {}}]
    set report [report_utilization -return_string {*}$limits]
    set entries {}
    foreach {key site} $sites {
        lappend entries "\"$key\": [used $report $site]"
    }
    return "{[join $entries {, }]}"
}

# Write timing and resources into vivado.json, and print whether timing is met.
proc measure {done files clock} {
    global here module inner build_hash
    set ip system_i/${module}_0
    set within [get_cells -quiet $ip/inst/$inner]
    set wns [get_property STATS.WNS $done]
    set whs [get_property STATS.WHS $done]
    if {$wns eq "" || $whs eq ""} {
        stop "the run says nothing of timing; the project says more"
    }
    set text [join [list \
        "  \"build_hash\": \"$build_hash\"" \
        "  \"vivado\": \"[version -short]\"" \
        "  \"board_files\": \"$files\"" \
        "  \"clock_mhz\": [expr {$clock / 1e6}]" \
        "  \"wns_ns\": $wns" \
        "  \"whs_ns\": $whs" \
        "  \"accelerator\": [expr {[llength $within] ? [utilisation $within] : {null}}]" \
        "  \"ip\": [utilisation [get_cells $ip]]" \
        "  \"design\": [utilisation {}]"] ",\n"]
    set channel [open [file join $here vivado.json] w]
    puts $channel "{\n$text\n}"
    close $channel
    set period [expr {1e9 / $clock}]
    if {$wns < 0} {
        puts "timing is not met by $wns ns at [expr {$clock / 1e6}] MHz; plan with --clock [expr {int(1e3 / ($period - $wns))}]"
    } elseif {$whs < 0} {
        puts "hold times are not met by $whs ns"
    } else {
        puts "timing is met: $wns ns are left at [expr {$clock / 1e6}] MHz"
    }
}

# Copy the files for a PYNQ board into the folder pynq, and write the hardware description for Vitis.
proc collect {folder done} {
    global here name pynq_files
    set target [file join $here pynq]
    file mkdir $target
    file copy -force [file join [get_property DIRECTORY $done] system_wrapper.bit] [file join $target $name.bit]
    set handoff [glob -nocomplain -directory $folder "$name.{gen,srcs}/sources_1/bd/system/hw_handoff/system.hwh"]
    if {[llength $handoff] != 1} {
        stop "the project has [llength $handoff] files system.hwh, not one"
    }
    file copy -force [lindex $handoff 0] [file join $target $name.hwh]
    foreach file_name $pynq_files {
        file copy -force [file join $here $file_name] [file join $target $file_name]
    }
    write_hw_platform -fixed -include_bit -force [file join $here $name.xsa]
}

set here [file dirname [file normalize [info script]]]
set options [parse_options [expr {[info exists argv] ? $argv : ""}]]
set files [find_board]
# The IP is packaged first. Its script sets the IP's name ($vendor, $library, $top, $version) and folder ($root).
set argv [list --part $board_part]
source [file join $here package_ip.tcl]
set folder [begin_project $files $root]
draw_design $vendor:$library:$top:$version
set clock [get_property CONFIG.FREQ_HZ [get_bd_pins $clock_pin]]
if {[dict get $options --to] eq "bitstream"} {
    set done [run [dict get $options --jobs]]
    measure $done $files $clock
    collect $folder $done
    puts "wrote vivado.json, $name.xsa and the folder pynq in $here"
}
close_project
