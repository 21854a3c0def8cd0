# From here on the script is the same for every design.

proc stop {reason} {
    error "project.tcl: $reason"
}

# What stands behind -tclargs.
proc asked {arguments} {
    set asked {--jobs 2 --to bitstream}
    foreach {option value} $arguments {
        if {![dict exists $asked $option]} {
            stop "takes --jobs N and --to design|bitstream behind -tclargs, not $arguments"
        }
        dict set asked $option $value
    }
    if {![regexp {^[1-9]\d*$} [dict get $asked --jobs]]} {
        stop "--jobs must be a positive number, not [dict get $asked --jobs]"
    }
    if {[dict get $asked --to] ni {design bitstream}} {
        stop "--to must be design or bitstream, not [dict get $asked --to]"
    }
    return $asked
}

# Vivado's files of the board: they have the settings of its processing system.
proc find_board {} {
    global board board_files board_part
    foreach pattern $board_files {
        set found [get_board_parts -quiet -latest_file_version $pattern]
        if {[llength $found]} {
            set found [lindex $found end]
            set part [get_property PART_NAME $found]
            if {$part ne $board_part} {
                stop "[get_property NAME $found] is for the part $part, but the design for $board_part"
            }
            return [get_property NAME $found]
        }
    }
    stop "this Vivado has no files of the board $board ([join $board_files {, }]); get them by Tools, Vivado Store, Boards"
}

proc begin_project {files root} {
    global here name board_part
    set folder [file join $here project]
    if {[file exists $folder] && ![file isfile [file join $folder $name.xpr]]} {
        stop "$folder is there already and is no project of $name; move it away"
    }
    create_project -force -part $board_part $name $folder
    set_property board_part $files [current_project]
    set_property ip_repo_paths $root [current_project]
    update_ip_catalog
    return $folder
}

proc configure {cell settings} {
    set found {}
    foreach {key value} $settings {
        lappend found CONFIG.$key $value
    }
    set_property -dict $found [get_bd_cells $cell]
}

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

# Everything has one clock and one reset.
proc clocked {cell clocks resets} {
    foreach pin $clocks {
        wire processing_system7_0/FCLK_CLK0 $cell/$pin
    }
    foreach pin $resets {
        wire reset_0/peripheral_aresetn $cell/$pin
    }
}

# The settings of the board, then what this design needs beyond them. A port to the memory takes several masters.
proc add_processor {memories} {
    global mhz
    if {$mhz > 250} {
        stop "the processing system makes clocks of up to 250 MHz, not $mhz: plan with --clock 250 or less"
    }
    set cell processing_system7_0
    add xilinx.com:ip:processing_system7:5.5 $cell
    apply_bd_automation -rule xilinx.com:bd_rule:processing_system7 \
        -config {make_external "FIXED_IO, DDR" apply_board_preset "1" Master "Disable" Slave "Disable"} [get_bd_cells $cell]
    set settings [list PCW_FPGA0_PERIPHERAL_FREQMHZ $mhz PCW_USE_M_AXI_GP0 1 PCW_USE_FABRIC_INTERRUPT 1 PCW_IRQ_F2P_INTR 1]
    for {set port 0} {$port < $memories} {incr port} {
        lappend settings PCW_USE_S_AXI_HP$port 1
    }
    configure $cell $settings
    add xilinx.com:ip:proc_sys_reset:5.0 reset_0
    wire $cell/FCLK_CLK0 reset_0/slowest_sync_clk
    wire $cell/FCLK_RESET0_N reset_0/ext_reset_in
    wire $cell/FCLK_CLK0 $cell/M_AXI_GP0_ACLK
    for {set port 0} {$port < $memories} {incr port} {
        wire $cell/FCLK_CLK0 $cell/S_AXI_HP${port}_ACLK
    }
}

# Connects masters with slaves, each in order.
proc add_interconnect {cell masters slaves} {
    add xilinx.com:ip:axi_interconnect:2.1 $cell [list NUM_SI [llength $masters] NUM_MI [llength $slaves]]
    wire processing_system7_0/FCLK_CLK0 $cell/ACLK
    wire reset_0/interconnect_aresetn $cell/ARESETN
    foreach {side buses} [list S $masters M $slaves] {
        set number 0
        foreach bus $buses {
            set port [format %s%02d $side $number]
            clocked $cell ${port}_ACLK ${port}_ARESETN
            if {$side eq "S"} {
                join_buses $bus $cell/${port}_AXI
            } else {
                join_buses $cell/${port}_AXI $bus
            }
            incr number
        }
    }
}

# The DMA of one stream in and one out, as far as there are so many. Says what it has for the memory and as interrupts.
proc add_dma {number} {
    global module senders receivers length_bits
    set cell axi_dma_$number
    set settings [list c_include_sg 0 c_sg_length_width $length_bits]
    set clocks s_axi_lite_aclk
    set masters {}
    set interrupts {}
    foreach {streams way} [list $senders mm2s $receivers s2mm] {
        lassign [lrange $streams [expr {2 * $number}] [expr {2 * $number + 1}]] stream bits
        set there [expr {$stream ne ""}]
        lappend settings c_include_$way $there
        if {$there} {
            lappend settings c_m_axi_${way}_data_width $bits
            lappend clocks m_axi_${way}_aclk
            lappend masters $cell/M_AXI_[string toupper $way]
            lappend interrupts $cell/${way}_introut
            if {$way eq "mm2s"} {
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

proc add_interrupts {pins} {
    add xilinx.com:ip:xlconcat:2.1 interrupts_0 [list NUM_PORTS [llength $pins]]
    set number 0
    foreach pin $pins {
        wire $pin interrupts_0/In$number
        incr number
    }
    wire interrupts_0/dout processing_system7_0/IRQ_F2P
}

# Where the processor sees registers; where others see the memory is Vivado's own choice.
proc add_addresses {dmas} {
    global module
    set space [get_bd_addr_spaces processing_system7_0/Data]
    assign_bd_address -offset 0x43C00000 -range 4K -target_address_space $space \
        [get_bd_addr_segs ${module}_0/s_axi_control/reg0]
    for {set number 0} {$number < $dmas} {incr number} {
        assign_bd_address -offset [format 0x%08X [expr {0x40400000 + ($number << 16)}]] -range 64K \
            -target_address_space $space [get_bd_addr_segs axi_dma_$number/S_AXI_LITE/Reg]
    }
    assign_bd_address
}

proc draw_design {ip} {
    global module senders receivers masters
    set dmas [expr {max([llength $senders], [llength $receivers]) / 2}]
    set memories [expr {min($dmas + [llength $masters], 4)}]
    create_bd_design system
    add_processor $memories
    add $ip ${module}_0
    clocked ${module}_0 aclk aresetn
    set slaves ${module}_0/s_axi_control
    set interrupts ${module}_0/interrupt
    for {set number 0} {$number < $dmas} {incr number} {
        lassign [add_dma $number] buses pins
        lappend slaves axi_dma_$number/S_AXI_LITE
        lappend interrupts {*}$pins
        lappend of([expr {$number % $memories}]) {*}$buses
    }
    foreach bus $masters {
        lappend of([expr {$number % $memories}]) ${module}_0/$bus
        incr number
    }
    add_interconnect control_0 processing_system7_0/M_AXI_GP0 $slaves
    for {set port 0} {$port < $memories} {incr port} {
        add_interconnect memory_$port $of($port) processing_system7_0/S_AXI_HP$port
    }
    add_interrupts $interrupts
    add_addresses $dmas
    validate_bd_design
    save_bd_design
    make_wrapper -top -import [get_files system.bd]
    set_property top system_wrapper [current_fileset]
    update_compile_order -fileset sources_1
}

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

# Used sites of a kind, of Vivado's report.
proc used {report site} {
    if {![regexp -line "^\\| *$site\\*? *\\| *(\\d+(?:\\.\\d+)?) *\\|" $report -> count]} {
        stop "Vivado's report of what is used has no $site"
    }
    return $count
}

# What is used, as JSON: of some cells, or of all.
proc utilisation {cells} {
    set limits [expr {[llength $cells] ? [list -cells $cells] : {}}]
    set report [report_utilization -return_string {*}$limits]
    set found {}
    foreach {key site} {lut "Slice LUTs" ff "Slice Registers" bram36 "Block RAM Tile" dsp DSPs} {
        lappend found "\"$key\": [used $report $site]"
    }
    return "{[join $found {, }]}"
}

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

# What a PYNQ board needs, in one folder; and what Vitis needs.
proc collect {folder done} {
    global here name beside
    set target [file join $here pynq]
    file mkdir $target
    file copy -force [file join [get_property DIRECTORY $done] system_wrapper.bit] [file join $target $name.bit]
    set handoff [glob -nocomplain -directory $folder "$name.{gen,srcs}/sources_1/bd/system/hw_handoff/system.hwh"]
    if {[llength $handoff] != 1} {
        stop "the project has [llength $handoff] files system.hwh, not one"
    }
    file copy -force [lindex $handoff 0] [file join $target $name.hwh]
    foreach each $beside {
        file copy -force [file join $here $each] [file join $target $each]
    }
    write_hw_platform -fixed -include_bit -force [file join $here $name.xsa]
}

set here [file dirname [file normalize [info script]]]
set asked [asked [expr {[info exists argv] ? $argv : ""}]]
set files [find_board]
# The IP first: its script says what it is called ($vendor, $library, $top, $version) and where it lies ($root).
set argv [list --part $board_part]
source [file join $here package_ip.tcl]
set folder [begin_project $files $root]
draw_design $vendor:$library:$top:$version
set clock [get_property CONFIG.FREQ_HZ [get_bd_pins processing_system7_0/FCLK_CLK0]]
if {[dict get $asked --to] eq "bitstream"} {
    set done [run [dict get $asked --jobs]]
    measure $done $files $clock
    collect $folder $done
    puts "wrote vivado.json, $name.xsa and the folder pynq in $here"
}
close_project
