# The commands of vivado.toml that draw a block design and run it, for vivado.tcl. What IPs have is in vivado_ip.toml; the
# accelerator has what was packaged before.

namespace eval vivado {
    variable board_part ""
    variable repository ""; # of IPs, once the catalogue was read
    variable design ""
    variable wires [dict create]; # input pins, by the pin that drives them
    variable links [dict create]; # buses, by those at the other end
    variable addresses {}; # space, segment, offset, range
    variable excluded {}; # space, segment
    variable external {}
    variable valid 0
    variable drawn 0; # the design was saved, and its wrapper made
    variable done {}; # runs

    proc need_design {} {
        variable design; variable valid
        if {$design eq ""} {
            error "no block design is open"
        }
        set valid 0
    }

    # Rows of a cell's pins or buses: name, direction or mode, kind; as many as a parameter says.
    proc rows {cell what} {
        variable names; variable values
        set vlnv [dict get $values $cell VLNV]
        set found {}
        foreach row [dict get $::catalogue $vlnv $what] {
            lassign $row name way kind repeat
            set times [times $cell $repeat]
            for {set number 0} {$number < $times} {incr number} {
                lappend found [list [format $name $number] $way $kind]
            }
        }
        return $found
    }

    # The product of a cell's parameters, each 0 or 1 where it is compared with a value.
    proc times {cell repeat} {
        set times 1
        foreach name $repeat {
            set wanted [lassign [split $name =] name]
            set value [parameter $cell $name]
            set times [expr {$times * ($wanted eq "" ? $value : $value eq $wanted)}]
        }
        return $times
    }

    proc parameter {cell name} {
        variable values
        if {[dict exists $values $cell CONFIG.$name]} {
            return [dict get $values $cell CONFIG.$name]
        }
        set vlnv [dict get $values $cell VLNV]
        return [dict get $::catalogue $vlnv defaults $name]
    }

    # A pin or bus by its path: the way it goes and its kind; an error if there is none.
    proc row {path what} {
        lassign [split $path /] name port
        set cell [find bd_cell $name ""]
        if {$cell eq ""} {
            error "the design has no cell $name"
        }
        foreach row [rows $cell $what] {
            if {[lindex $row 0] eq $port} {
                return $row
            }
        }
        error "$name has no $port"
    }

    proc do_get_board_parts {options pattern} {
        set found {}
        dict for {name part} $::boards {
            if {[string match $pattern $name]} {
                set object [find board_part $name ""]
                if {$object eq ""} {
                    variable values
                    set object [make board_part $name ""]
                    dict set values $object PART_NAME $part
                }
                lappend found $object
            }
        }
        return $found
    }

    proc do_current_project {options} {
        variable project
        if {$project eq ""} {
            error "no project is open"
        }
        set found [find project current ""]
        return [expr {$found eq "" ? [make project current ""] : $found}]
    }

    proc do_update_ip_catalog {options} {
        variable values; variable repository; variable root; variable core; variable names
        set paths [dict get $values [do_current_project {}] ip_repo_paths]
        if {$paths ne $root || ![file isfile [file join $paths component.xml]]} {
            error "there is no IP in $paths"
        }
        set repository $paths
        set name [dict get $values $core name]
        set row [dict create pins {} buses {} parameters {} defaults {} spaces {} segments {}]
        foreach bus [find bus_interface * $core] {
            set kind [lindex [split [dict get $values $bus bus_type_vlnv] :] 2]
            set mode [dict get $values $bus interface_mode]
            if {$kind in {axis aximm}} {
                dict lappend row buses [list [dict get $names $bus] $mode $kind {}]
            } else {
                set way [expr {$mode eq "master" ? "out" : "in"}]
                foreach map [find port_map * $bus] {
                    dict lappend row pins [list [dict get $values $map physical_name] $way $kind {}]
                }
            }
        }
        foreach space [find address_space * $core] {
            foreach bus [find bus_interface * $core] {
                if {[dict exists $values $bus master_address_space_ref]
                    && [dict get $values $bus master_address_space_ref] eq [dict get $names $space]} {
                    dict lappend row spaces [list [dict get $names $space] [dict get $names $bus] \
                        0x0+[dict get $values $space range] {}]
                }
            }
        }
        foreach map [find memory_map * $core] {
            foreach block [find address_block * $map] {
                dict lappend row segments [list [dict get $names $map]/[dict get $names $block] {} {} {}]
            }
        }
        dict set ::catalogue [dict get $names $core]:$name:[dict get $values $core version] $row
    }

    proc do_create_bd_design {options name} {
        variable design
        do_current_project {}
        set design $name
    }

    proc do_create_bd_cell {options name} {
        variable values
        need_design
        set vlnv [newest [dict get $options -vlnv]]
        if {[dict get $options -type] ne "ip" || ![dict exists $::catalogue $vlnv]} {
            error "the catalogue has no $vlnv"
        }
        set cell [make bd_cell $name ""]
        dict set values $cell VLNV $vlnv
        return $cell
    }

    # The name of an IP with its newest version, if it is without one.
    proc newest {vlnv} {
        set versions [lsort -dictionary [dict keys $::catalogue $vlnv:*]]
        return [expr {[llength $versions] ? [lindex $versions end] : $vlnv}]
    }

    # The preset replaces what was set before.
    proc do_apply_bd_automation {options cell} {
        variable values; variable board_part; variable external
        need_design
        set vlnv [dict get $values [need $cell bd_cell] VLNV]
        if {[dict get $options -rule] ne "xilinx.com:bd_rule:[lindex [split $vlnv :] 2]"
            || ![dict exists $::catalogue $vlnv automation]} {
            error "[dict get $options -rule] is no rule of $vlnv"
        }
        set known [dict get $::catalogue $vlnv automation]
        foreach key [dict keys [dict get $options -config]] {
            if {$key ni $known} {
                error "the rule has no $key"
            }
        }
        if {"Board_Interface" in $known} {
            set interface [dict get $options -config Board_Interface]
            if {$board_part eq "" || $interface ni [dict get $::board_interfaces $board_part]} {
                error "the board has no interface $interface"
            }
            set external DDR3,SYS_CLK
        } elseif {[dict get $options -config apply_board_preset] && $board_part eq ""} {
            error "there is no board whose preset could be applied"
        }
        if {"make_external" in $known} {
            set external [dict get $options -config make_external]
        }
        dict set values $cell [dict create VLNV $vlnv]
    }

    # A port of the design: a single one of a direction, or an interface of a mode and a type.
    proc do_create_bd_port {options name} {
        variable values
        need_design
        if {[dict get $options -dir] ne "I" || [dict get $options -type] ne "rst"} {
            error "$name is no input of a reset"
        }
        return [make bd_port $name ""]
    }

    proc do_create_bd_intf_port {options name} {
        variable values
        need_design
        set port [make bd_intf_port $name ""]
        if {![regexp {^xilinx.com:interface:(\w+)_rtl:1.0$} [dict get $options -vlnv] -> kind]} {
            error "there is no interface [dict get $options -vlnv]"
        }
        dict set values $port MODE [string tolower [dict get $options -mode]]
        dict set values $port KIND $kind
        return $port
    }

    proc do_get_bd_ports {options name} {
        return [need [find bd_port $name ""] bd_port]
    }

    proc do_get_bd_intf_ports {options name} {
        return [need [find bd_intf_port $name ""] bd_intf_port]
    }

    # Name, direction and kind of a pin or a port: a port's input drives the design.
    proc end_of_net {object} {
        variable names; variable classes
        if {[dict get $classes $object] eq "bd_port"} {
            return [list [dict get $names $object] out reset]
        }
        set path [dict get $names [need $object bd_pin]]
        return [list $path {*}[lrange [row $path pins] 1 2]]
    }

    proc do_get_bd_cells {options name} {
        return [find bd_cell $name ""]
    }

    proc do_get_bd_pins {options path} {
        row $path pins
        set found [find bd_pin $path ""]
        return [expr {$found eq "" ? [make bd_pin $path ""] : $found}]
    }

    proc do_get_bd_intf_pins {options path} {
        row $path buses
        set found [find bd_intf_pin $path ""]
        return [expr {$found eq "" ? [make bd_intf_pin $path ""] : $found}]
    }

    proc do_connect_bd_net {options from to} {
        variable names; variable wires
        need_design
        lassign [end_of_net $from] source way kind
        lassign [end_of_net $to] sink other other_kind
        if {$way ne "out" || $other ne "in" || $kind ne $other_kind} {
            error "$source ($way, $kind) can't drive $sink ($other, $other_kind)"
        }
        if {[dict exists $wires $sink]} {
            error "$sink has a driver already"
        }
        dict set wires $sink $source
    }

    proc do_connect_bd_intf_net {options from to} {
        variable names; variable links
        need_design
        if {[find bd_intf_port * ""] ne "" && $from in [find bd_intf_port * ""]} {
            connect_port $from [dict get $names [need $to bd_intf_pin]]
            return
        }
        set master [dict get $names [need $from bd_intf_pin]]
        set slave [dict get $names [need $to bd_intf_pin]]
        lassign [row $master buses] -> mode kind
        lassign [row $slave buses] -> other other_kind
        if {$mode ne "master" || $other ne "slave" || $kind ne $other_kind} {
            error "$master ($mode, $kind) does not fit $slave ($other, $other_kind)"
        }
        foreach {one another} [list $master $slave $slave $master] {
            if {[dict exists $links $one]} {
                error "$one is connected already"
            }
            dict set links $one $another
        }
    }

    # An interface port continues the interface pin of a cell, of the same mode and type.
    proc connect_port {port pin} {
        variable names; variable values; variable links
        lassign [row $pin buses] -> mode kind
        if {$mode ne [dict get $values $port MODE] || $kind ne [dict get $values $port KIND]} {
            error "[dict get $names $port] does not fit $pin ($mode, $kind)"
        }
        foreach {one another} [list [dict get $names $port] $pin $pin [dict get $names $port]] {
            if {[dict exists $links $one]} {
                error "$one is connected already"
            }
            dict set links $one $another
        }
    }

    # Address spaces and segments that fit a pattern, as paths; an error if there are none.
    proc addressed {what pattern} {
        set name [lindex [split $pattern /] 0]
        set cell [find bd_cell $name ""]
        set found {}
        foreach row [expr {$cell eq "" ? {} : [rows $cell $what]}] {
            if {[string match $pattern $name/[lindex $row 0]]} {
                lappend found /$name/[lindex $row 0]
            }
        }
        if {![llength $found]} {
            error "there is no $pattern"
        }
        return $found
    }

    proc do_get_bd_addr_spaces {options path} {
        return [addressed spaces $path]
    }

    proc do_get_bd_addr_segs {options path} {
        return [addressed segments $path]
    }

    # First address and size of a space, or of a segment that has its place.
    proc place {what path} {
        set path [string trimleft $path /]
        set name [lindex [split $path /] 0]
        foreach row [rows [find bd_cell $name ""] $what] {
            if {"$name/[lindex $row 0]" eq $path} {
                return [split [lindex $row 2] +]
            }
        }
        error "there is no $path"
    }

    # A segment at an address in a space, or at its own.
    proc do_assign_bd_address {options {segment ""}} {
        need_design
        if {$segment eq ""} {
            assign_rest
            return
        }
        set given [dict exists $options -offset]
        if {$given != [dict exists $options -range]} {
            error "$segment has an address and no range, or a range and no address"
        }
        if {$given} {
            set range [expr [string map {K *1024} [dict get $options -range]]]
            assign [dict get $options -target_address_space] $segment [dict get $options -offset] $range
        } elseif {[llength [place segments $segment]]} {
            assign [dict get $options -target_address_space] $segment {*}[place segments $segment]
        } else {
            error "$segment has no address of its own"
        }
    }

    proc assign {space segment offset range} {
        variable addresses
        lassign [place spaces $space] first size
        if {$offset < $first || $offset + $range > $first + $size} {
            error "$segment at $offset is outside of $space"
        }
        lappend addresses [list [string trimleft $space /] [string trimleft $segment /] $offset $range]
    }

    proc do_exclude_bd_addr_seg {options segment} {
        variable excluded
        need_design
        set space [dict get $options -target_address_space]
        place spaces $space
        place segments $segment
        lappend excluded [list [string trimleft $space /] [string trimleft $segment /]]
    }

    # Spaces of masters, and the segments of memory that each reaches through interconnects.
    proc reachable {} {
        variable names
        set found {}
        foreach cell [find bd_cell * ""] {
            set name [dict get $names $cell]
            foreach row [rows $cell spaces] {
                foreach slave [reached $name/[lindex $row 1]] {
                    lassign [split $slave /] owner bus
                    foreach segment [rows [find bd_cell $owner ""] segments] {
                        if {[lindex $segment 1] eq $bus} {
                            lappend found $name/[lindex $row 0] $owner/[lindex $segment 0]
                        }
                    }
                }
            }
        }
        return $found
    }

    # What masters reach, and can address: all of the memory.
    proc assign_rest {} {
        foreach {space segment} [reachable] {
            lassign [place spaces $space] first size
            lassign [place segments $segment] offset range
            if {$offset >= $first && $offset + $range <= $first + $size} {
                assign $space $segment $offset $range
            }
        }
    }

    # The slaves behind a master.
    proc reached {master} {
        variable links; variable values
        if {![dict exists $links $master]} {
            return {}
        }
        set slave [dict get $links $master]
        set name [lindex [split $slave /] 0]
        if {![string match *:axi_interconnect:* [dict get $values [find bd_cell $name ""] VLNV]]} {
            return [list $slave]
        }
        set found {}
        foreach row [rows [find bd_cell $name ""] buses] {
            if {[lindex $row 1] eq "master"} {
                lappend found {*}[reached $name/[lindex $row 0]]
            }
        }
        return $found
    }

    # All inputs are driven, all buses connected, all registers have an address, and none has another one's.
    proc do_validate_bd_design {options} {
        variable valid; variable names; variable wires; variable links; variable addresses; variable excluded
        variable external
        need_design
        foreach cell [find bd_cell * ""] {
            set name [dict get $names $cell]
            foreach row [rows $cell pins] {
                lassign $row port way kind
                if {$way eq "in" && $kind ne "optional" && ![dict exists $wires $name/$port]} {
                    error "$name/$port is not connected"
                }
            }
            foreach row [rows $cell buses] {
                lassign $row port way kind
                if {$kind ne "pads" && ![dict exists $links $name/$port]} {
                    error "$name/$port is not connected"
                }
                if {$kind eq "pads" && $port ni [split [string map {", " ,} $external] ,]} {
                    error "$name/$port does not reach the pins of the device"
                }
            }
            foreach row [rows $cell segments] {
                if {[lindex $row 1] eq "" && [lsearch -index 1 $addresses $name/[lindex $row 0]] < 0} {
                    error "$name/[lindex $row 0] has no address"
                }
            }
        }
        foreach {class connected} [list bd_port [dict values $wires] bd_intf_port [dict keys $links]] {
            foreach port [find $class * ""] {
                if {[dict get $names $port] ni $connected} {
                    error "[dict get $names $port] is not connected"
                }
            }
        }
        foreach {space segment} [reachable] {
            set assigned [lsearch -inline -all -index 0 $addresses $space]
            if {[lsearch -index 1 $assigned $segment] < 0 && [list $space $segment] ni $excluded} {
                error "$segment has no address in $space"
            }
        }
        foreach one $addresses {
            foreach other $addresses {
                if {$one ne $other && [lindex $one 0] eq [lindex $other 0]
                    && [lindex $one 2] < [lindex $other 2] + [lindex $other 3]
                    && [lindex $other 2] < [lindex $one 2] + [lindex $one 3]} {
                    error "[lindex $one 1] and [lindex $other 1] overlap"
                }
            }
        }
        set valid 1
    }

    proc do_save_bd_design {options} {
        variable valid
        if {!$valid} {
            error "the design was not validated"
        }
    }

    proc do_get_files {options name} {
        variable design
        if {$name ne "$design.bd"} {
            error "the project has no file $name"
        }
        return $name
    }

    proc do_make_wrapper {options file} {
        variable project; variable files; variable drawn
        set path [file join $project [file rootname $file]_wrapper.v]
        set channel [open $path w]
        puts $channel "\nmodule [file rootname $file]_wrapper (\n);\nendmodule"
        close $channel
        lappend files $path
        set drawn 1
    }

    proc do_launch_runs {options name} {
        variable valid; variable drawn; variable project; variable values; variable done
        if {$name ne "impl_1" || [dict get $options -to_step] ne "write_bitstream" || !$valid || !$drawn} {
            error "$name can't run"
        }
        set run [make run $name ""]
        set folder [file join $project $name]
        file mkdir $folder
        foreach {property value} [list PROGRESS $::progress STATUS "write_bitstream ERROR" STATS.WNS $::slack STATS.WHS 0.051 DIRECTORY $folder] {
            dict set values $run $property $value
        }
        close [open [file join $folder system_wrapper.bit] w]
        lassign [glob [file join $project *.xpr]] xpr
        set handoff [file join $project [file rootname [file tail $xpr]].gen sources_1 bd system hw_handoff]
        file mkdir $handoff
        close [open [file join $handoff system.hwh] w]
    }

    proc do_wait_on_run {options name} {
        need [find run $name ""] run
    }

    proc do_get_runs {options name} {
        return [need [find run $name ""] run]
    }

    proc do_open_run {options name} {
        variable done
        lappend done [need [find run $name ""] run]
    }

    proc do_get_cells {options path} {
        variable names
        if {![regexp {^system_i/(\w+?)(/inst/(accelerator|engine))?$} $path -> cell]} {
            error "the design has no cell $path"
        }
        need [find bd_cell $cell ""] bd_cell
        set found [find cell $path ""]
        return [expr {$found eq "" ? [make cell $path ""] : $found}]
    }

    # As Vivado prints it, with figures of their own for each cell.
    proc do_report_utilization {options} {
        variable done; variable names; variable part
        if {![llength $done] || ![dict exists $options -return_string]} {
            error "no design is open, or the report is not asked for as text"
        }
        set path [expr {[dict exists $options -cells] ? [dict get $names [dict get $options -cells]] : "all"}]
        set size [expr {$path eq "all" ? 3000 : [string match */inst/* $path] ? 1000 : 2000}]
        set rule "+----------------------------+------+-------+------------+-----------+-------+"
        set slice [expr {[string match xc7* $part] ? "Slice" : "CLB"}]
        set text "1. $slice Logic\n--------------\n\n$rule\n"
        append text "|          Site Type         | Used | Fixed | Prohibited | Available | Util% |\n$rule\n"
        foreach {site used} [list "$slice LUTs" $size "  LUT as Logic" [expr {$size - 100}] "$slice Registers" [expr {$size + 1}] \
            "Block RAM Tile" [expr {$size / 1000}].5 "  RAMB18 only" 1 DSPs [expr {$size / 100}]] {
            append text [format "| %-26s | %4s |     0 |          0 |     53200 |  1.00 |\n" $site $used]
        }
        return $text$rule\n
    }

    proc do_write_hw_platform {options path} {
        variable done
        if {![llength $done] || [file extension $path] ne ".xsa"} {
            error "no implemented design, or no .xsa"
        }
        close [open $path w]
    }

    proc do_version {options} {
        return 2023.1
    }

    # Rows of the design: nets, buses, addresses, settings.
    proc dump_design {channel} {
        variable wires; variable links; variable addresses; variable excluded; variable drawn; variable constraints
        dict for {sink source} $wires {
            puts $channel [join [list wire $sink driver $source] \t]
        }
        dict for {one other} $links {
            puts $channel [join [list link $one other $other] \t]
        }
        foreach row $addresses {
            lassign $row space segment offset range
            puts $channel [join [list address $segment $space [format 0x%llx+0x%llx $offset $range]] \t]
        }
        foreach row $excluded {
            lassign $row space segment
            puts $channel [join [list excluded $segment $space ""] \t]
        }
        foreach file $constraints {
            puts $channel [join [list constraints [file tail $file] "" ""] \t]
        }
        puts $channel [join [list drawn $drawn "" ""] \t]
    }
}
