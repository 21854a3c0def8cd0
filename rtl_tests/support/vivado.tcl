# Stands in for Vivado: tclsh vivado.tcl RULES DUMP SCRIPT ARGUMENTS.. runs a script with the commands of vivado.toml, as
# RULES has them in Tcl, and says in DUMP what became of the IP: class, path of names, property and value, a line each.

namespace eval vivado {
    variable classes [dict create]; # of objects
    variable names [dict create]
    variable parents [dict create]
    variable inside [dict create]; # names of objects, by what they are part of
    variable values [dict create]; # of properties, by object and name
    variable files {}
    variable constraints {}; # files of them
    variable ports [dict create]; # of the top module: their directions
    variable project ""
    variable part ""
    variable root ""
    variable core ""
    variable saved 0
    variable used [dict create]
    variable count 0

    proc make {class name parent} {
        variable classes; variable names; variable parents; variable inside; variable count
        if {[find $class $name $parent] ne ""} {
            error "$class $name is there twice"
        }
        set object "$class#[incr count]"
        dict set classes $object $class
        dict set names $object $name
        dict set parents $object $parent
        dict set inside $parent $object $name
        return $object
    }

    proc find {class name parent} {
        variable inside
        set found {}
        if {[dict exists $inside $parent]} {
            dict for {object other} [dict get $inside $parent] {
                if {[string match "$class#*" $object] && ($name eq "*" || $name eq $other)} {
                    lappend found $object
                }
            }
        }
        return $found
    }

    proc remove {object} {
        variable classes; variable parents; variable inside
        if {[dict exists $inside $object]} {
            foreach other [dict keys [dict get $inside $object]] {
                remove $other
            }
        }
        dict unset inside [dict get $parents $object] $object
        dict unset classes $object
    }

    proc need {object class} {
        variable classes
        if {![dict exists $classes $object] || [dict get $classes $object] ne $class} {
            error "\"$object\" is no $class"
        }
        return $object
    }

    # A call of a command: its options by the list, then what it does.
    proc call {command arguments} {
        variable used
        lassign [dict get $::commands $command] fewest most options
        set given [dict create]
        set rest {}
        while {[llength $arguments]} {
            set arguments [lassign $arguments word]
            if {[string match {-[a-z]*} $word]} {
                if {![dict exists $options $word]} {
                    error "$command: option $word is not on the list"
                }
                dict lappend used $command $word
                dict set given $word 1
                if {[dict get $options $word]} {
                    set arguments [lassign $arguments value]
                    dict set given $word $value
                }
            } else {
                lappend rest $word
            }
        }
        if {[llength $rest] < $fewest || [llength $rest] > $most} {
            error "$command: takes $fewest to $most arguments, not [llength $rest]: $rest"
        }
        dict lappend used $command ""
        return [do_[string map {:: _} $command] $given {*}$rest]
    }

    # Ports of a module, of its text.
    proc read_module {name} {
        variable files; variable ports
        foreach file $files {
            set channel [open $file]
            set text "\n[read $channel]"
            close $channel
            set start [string first "\nmodule $name (\n" $text]
            if {$start >= 0} {
                set list [string range $text $start [string first "\n);\n" $text $start]]
                foreach {all direction port} [regexp -all -inline -line {^ *(input|output) .*[ ](\w+),?$} $list] {
                    dict set ports $port $direction
                }
                return
            }
        }
        error "no added file has a module $name"
    }

    proc do_get_parts {options pattern} {
        return [lsearch -all -inline $::parts $pattern]
    }

    proc do_create_project {options name {folder .}} {
        variable project; variable part; variable files; variable constraints
        set part [dict get $options -part]
        if {$part ni $::parts} {
            error "no part $part"
        }
        if {[file exists $folder] && ![dict exists $options -force]} {
            error "$folder is there already"
        }
        file mkdir $folder
        close [open [file join $folder $name.xpr] w]
        set project $folder
        set files {}
        set constraints {}
    }

    proc do_close_project {options} {
        variable project
        if {$project eq ""} {
            error "no project is open"
        }
        if {[dict exists $options -delete]} {
            file delete -force $project
        }
        set project ""
    }

    proc do_add_files {options paths} {
        variable files; variable constraints
        set fileset [expr {[dict exists $options -fileset] ? [dict get $options -fileset] : "sources_1"}]
        foreach path $paths {
            if {![file isfile $path]} {
                error "$path does not exist"
            }
            if {$fileset ne [expr {[file extension $path] eq ".xdc" ? "constrs_1" : "sources_1"}]} {
                error "$path does not belong to $fileset"
            }
            lappend [expr {$fileset eq "constrs_1" ? "constraints" : "files"}] $path
        }
    }

    proc do_current_fileset {options} {
        set found [find fileset sources_1 ""]
        return [expr {$found eq "" ? [make fileset sources_1 ""] : $found}]
    }

    proc do_update_compile_order {options} {
        find fileset [dict get $options -fileset] ""
    }

    # Either a name and a value, or a list of them behind -dict.
    proc do_set_property {options args} {
        set object [lindex $args end]
        set pairs [expr {[dict exists $options -dict] ? [dict get $options -dict] : [lrange $args 0 end-1]}]
        if {[llength $args] != ([dict exists $options -dict] ? 1 : 3)} {
            error "set_property: takes a name, a value and an object, not $args"
        }
        foreach {name value} $pairs {
            set_one $name $value $object
        }
    }

    # What the values of a property must be like; nothing if it is not on the list.
    proc rule_of {class name object} {
        variable values
        if {$class eq "bd_cell" && [string match CONFIG.* $name]} {
            set known [dict get $::catalogue [dict get $values $object VLNV] parameters]
            set name [string range $name 7 end]
        } else {
            set known [expr {[dict exists $::properties $class] ? [dict get $::properties $class] : {}}]
        }
        return [expr {[dict exists $known $name] ? [dict get $known $name] : ""}]
    }

    proc set_one {name value object} {
        variable classes; variable values; variable ports; variable board_part
        set class [expr {[dict exists $classes $object] ? [dict get $classes $object] : ""}]
        set rule [rule_of $class $name $object]
        if {$rule eq ""} {
            error "property $name of \"$object\" is not on the list"
        }
        if {$class eq "project" && $name eq "board_part"} {
            need [find board_part $value ""] board_part
            set board_part $value
        }
        if {![regexp "^(?:$rule)$" $value]} {
            error "property $name of $class must not be \"$value\""
        }
        if {$class eq "fileset"} {
            read_module $value
        }
        if {$class eq "port_map" && ![dict exists $ports $value]} {
            error "the module has no port $value"
        }
        dict set values $object $name $value
    }

    proc do_get_property {options name object} {
        variable classes; variable names; variable values
        set class [expr {[dict exists $classes $object] ? [dict get $classes $object] : ""}]
        if {$class eq "bd_pin" && $name eq "CONFIG.FREQ_HZ"} {
            return $::frequency
        }
        if {[string tolower $name] eq "name" && $class ne ""} {
            return [dict get $names $object]
        }
        if {$name eq "RANGE" && [string index $object 0] eq "/"} {
            return [lindex [place segments $object] 1]
        }
        if {![dict exists $values $object $name]} {
            error "property $name of \"$object\" is not on the list"
        }
        return [dict get $values $object $name]
    }

    proc do_ipx_package_project {options} {
        variable root; variable core; variable ports; variable files
        set root [dict get $options -root_dir]
        file mkdir [file join $root src]
        foreach file $files {
            file copy -force $file [file join $root src]
        }
        close [open [file join $root component.xml] w]
        set core [make core "[dict get $options -vendor]:[dict get $options -library]" ""]
        infer_$::inference
        return $core
    }

    proc infer_nothing {} {
    }

    # By their names: UG1118, Inferring AXI Signals, Inferring Clock and Reset Interfaces.
    proc infer_names {} {
        variable ports; variable core
        dict for {port direction} $ports {
            if {[regexp {^(.+)_([a-z]+)$} $port -> name signal]} {
                set bus [find bus_interface $name $core]
                if {$bus eq ""} {
                    set bus [make bus_interface $name $core]
                }
                make port_map [string toupper $signal] $bus
            } elseif {$port eq "aclk" || $port eq "aresetn"} {
                make port_map [expr {$port eq "aclk" ? "CLK" : "RST"}] [make bus_interface $port $core]
            }
        }
        make address_block reg0 [make memory_map s_axi_control $core]
        foreach name {m_axi_mem m_axi_mem_0 m_axi_mem_1 m_axi_mem_2 m_axi_mem_3} {
            if {[find bus_interface $name $core] ne ""} {
                make address_space $name $core
            }
        }
    }

    # Something else, which must not stay.
    proc infer_other {} {
        variable core
        make port_map TDATA [make bus_interface S_AXIS $core]
        make register STRANGE [make address_block Reg [make memory_map s_axi_control $core]]
    }

    proc do_ipx_current_core {options} {
        variable core
        return $core
    }

    proc do_ipx_get_bus_interfaces {options {name *}} {
        return [find bus_interface $name [need [dict get $options -of_objects] core]]
    }

    proc do_ipx_add_bus_interface {options name core} {
        return [make bus_interface $name [need $core core]]
    }

    proc do_ipx_remove_bus_interface {options name core} {
        remove [find bus_interface $name [need $core core]]
    }

    proc do_ipx_get_port_maps {options name} {
        return [find port_map $name [need [dict get $options -of_objects] bus_interface]]
    }

    proc do_ipx_add_port_map {options name bus} {
        return [make port_map $name [need $bus bus_interface]]
    }

    proc do_ipx_get_bus_parameters {options name} {
        return [find bus_parameter $name [need [dict get $options -of_objects] bus_interface]]
    }

    proc do_ipx_add_bus_parameter {options name bus} {
        return [make bus_parameter $name [need $bus bus_interface]]
    }

    proc do_ipx_get_memory_maps {options name} {
        return [find memory_map $name [need [dict get $options -of_objects] core]]
    }

    proc do_ipx_add_memory_map {options name core} {
        return [make memory_map $name [need $core core]]
    }

    proc do_ipx_get_address_spaces {options name} {
        return [find address_space $name [need [dict get $options -of_objects] core]]
    }

    proc do_ipx_add_address_space {options name core} {
        return [make address_space $name [need $core core]]
    }

    proc do_ipx_get_address_blocks {options} {
        return [find address_block * [need [dict get $options -of_objects] memory_map]]
    }

    proc do_ipx_add_address_block {options name map} {
        return [make address_block $name [need $map memory_map]]
    }

    proc do_ipx_remove_address_block {options name map} {
        remove [find address_block $name [need $map memory_map]]
    }

    proc do_ipx_add_register {options name block} {
        return [make register $name [need $block address_block]]
    }

    proc do_ipx_add_field {options name register} {
        return [make field $name [need $register register]]
    }

    proc do_ipx_add_file_group {options name core} {
        if {$name ne "" || [dict get $options -type] ne "misc"} {
            error "file groups of type [dict get $options -type] are not on the list"
        }
        return [make file_group xilinx_miscfiles [need $core core]]
    }

    proc do_ipx_add_file {options name group} {
        variable root
        if {![file isfile [file join $root $name]]} {
            error "$name does not exist in $root"
        }
        return [make file $name [need $group file_group]]
    }

    foreach name {create_xgui_files update_checksums check_integrity} {
        proc do_ipx_$name {options core} {
            need $core core
        }
    }

    proc do_ipx_save_core {options core} {
        variable saved
        need $core core
        set saved 1
    }

    proc path {object} {
        variable names; variable parents
        set parent [dict get $parents $object]
        set name [dict get $names $object]
        return [expr {$parent eq "" ? $name : "[path $parent]/$name"}]
    }

    proc dump {file} {
        variable classes; variable values; variable files; variable used
        set channel [open $file w]
        dict for {object class} $classes {
            puts $channel [join [list $class [path $object] "" ""] \t]
            if {[dict exists $values $object]} {
                dict for {name value} [dict get $values $object] {
                    puts $channel [join [list $class [path $object] $name $value] \t]
                }
            }
        }
        dump_design $channel
        foreach file $files {
            puts $channel [join [list source [file tail $file] "" ""] \t]
        }
        dict for {command options} $used {
            foreach option [lsort -unique $options] {
                puts $channel [join [list used $command $option ""] \t]
            }
        }
        close $channel
    }
}

source [file join [file dirname [info script]] vivado_design.tcl]
set argv [lassign $argv rules dump script]
source $rules
namespace eval ipx {}
dict for {command rule} $commands {
    proc ::$command {args} "vivado::call $command \$args"
}
if {[catch {source $script} reason]} {
    puts stderr $reason
    exit 1
}
if {!$vivado::saved || $vivado::project ne ""} {
    puts stderr "the IP was not saved, or the project stays open"
    exit 1
}
vivado::dump $dump
