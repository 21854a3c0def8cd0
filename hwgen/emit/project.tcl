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

# Return the name of Vivado's board files, which have the settings of the board's processing system or memory.
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

# Return the pins of the clock and the reset that a cell's buses have: the design's, unless its host says otherwise.
proc domain {cell} {
    global clock_pin domains
    return [expr {[info exists domains($cell)] ? $domains($cell) : [list $clock_pin reset_0/peripheral_aresetn]}]
}

# Connect the clock and reset pins of a cell, with the clock and reset of the cell `of`.
proc clocked {cell clocks resets {of ""}} {
    lassign [domain $of] clock reset
    foreach pin $clocks {
        wire $clock $cell/$pin
    }
    foreach pin $resets {
        wire $reset $cell/$pin
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
            clocked $cell ${port}_ACLK ${port}_ARESETN [file dirname $bus]
            if {$side eq "S"} {
                join_buses $bus $cell/${port}_AXI
            } else {
                join_buses $cell/${port}_AXI $bus
            }
            incr index
        }
    }
}

# Check and save the block design, and make it the project's top, with the constraints of its pins.
proc finish_design {} {
    global here constraints
    validate_bd_design
    save_bd_design
    make_wrapper -top -import [get_files system.bd]
    set_property top system_wrapper [current_fileset]
    foreach file_name $constraints {
        add_files -fileset constrs_1 [list [file join $here $file_name]]
    }
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

set here [file dirname [file normalize [info script]]]
set options [parse_options [expr {[info exists argv] ? $argv : ""}]]
set files [find_board]
# The IP is packaged first. Its script sets the IP's name ($vendor, $library, $top, $version) and folder ($root).
set argv [list --part $board_part]
source [file join $here package_ip.tcl]
set folder [begin_project $files $root]
draw_design $vendor:$library:$top:$version
finish_design
set clock [get_property CONFIG.FREQ_HZ [get_bd_pins $clock_pin]]
if {[dict get $options --to] eq "bitstream"} {
    set done [run [dict get $options --jobs]]
    measure $done $files $clock
    puts "wrote vivado.json and [collect $folder $done] in $here"
}
close_project
