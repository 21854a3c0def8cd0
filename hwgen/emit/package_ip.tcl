# The rest of the script is equal for all designs.

proc fail {reason} {
    error "package_ip.tcl: $reason"
}

# Return the part to package for: the part in -tclargs, or the board's part.
proc part_of {part arguments} {
    if {[llength $arguments] == 2 && [lindex $arguments 0] eq "--part"} {
        set part [lindex $arguments 1]
    } elseif {[llength $arguments]} {
        fail "accepts --part PART after -tclargs, not $arguments"
    }
    if {$part eq ""} {
        fail "the design was built for no part; give one: -tclargs --part PART"
    }
    if {[llength [get_parts -quiet $part]] != 1} {
        fail "this Vivado has no part $part; install its family of devices, or give another: -tclargs --part PART"
    }
    return $part
}

proc check_files {folder names} {
    foreach name $names {
        if {![file isfile [file join $folder $name]]} {
            fail "$name is missing in $folder; build the design again"
        }
    }
}

# Delete an earlier IP, but no other folder.
proc clear {root} {
    if {[file exists $root] && ![file isfile [file join $root component.xml]]} {
        fail "$root is there already and is not an IP; move it away"
    }
    file delete -force $root
}

# Create a project with the sources, and return the IP that Vivado infers from the project.
proc begin {} {
    global here root top part sources vendor library
    set paths {}
    foreach name $sources {
        lappend paths [file join $here $name]
    }
    create_project -force -part $part package_ip [file join $here ip_project]
    add_files -norecurse $paths
    set_property top $top [current_fileset]
    update_compile_order -fileset sources_1
    ipx::package_project -root_dir $root -vendor $vendor -library $library -taxonomy /UserIP -import_files \
        -set_current true -force
    return [ipx::current_core]
}

proc identify {core} {
    global top version revision description
    set_property name $top $core
    set_property display_name $top $core
    set_property description $description $core
    set_property version $version $core
    set_property core_revision $revision $core
    set_property vendor_display_name hwgen $core
}

# Define an interface of the IP, whether or not Vivado has inferred it from the names of the ports.
proc define_interface {core name type mode signals parameters} {
    set bus [ipx::get_bus_interfaces -quiet $name -of_objects $core]
    if {$bus eq ""} {
        set bus [ipx::add_bus_interface $name $core]
    }
    set_property bus_type_vlnv xilinx.com:$type:1.0 $bus
    set_property abstraction_type_vlnv xilinx.com:${type}_rtl:1.0 $bus
    set_property interface_mode $mode $bus
    foreach {signal port} $signals {
        set map [ipx::get_port_maps -quiet $signal -of_objects $bus]
        if {$map eq ""} {
            set map [ipx::add_port_map $signal $bus]
        }
        set_property physical_name $port $map
    }
    foreach {parameter value} $parameters {
        set entry [ipx::get_bus_parameters -quiet $parameter -of_objects $bus]
        if {$entry eq ""} {
            set entry [ipx::add_bus_parameter $parameter $bus]
        }
        set_property value $value $entry
    }
}

# Define all interfaces of the IP, and remove all others that Vivado has inferred.
proc define_interfaces {core} {
    global interfaces
    set names {}
    foreach {name type mode signals parameters} $interfaces {
        lappend names $name
        define_interface $core $name $type $mode $signals $parameters
    }
    foreach bus [ipx::get_bus_interfaces -of_objects $core] {
        set name [get_property name $bus]
        if {$name ni $names} {
            ipx::remove_bus_interface $name $core
        }
    }
}

# Define the address spaces of the masters. A processing system maps its memory into them.
proc define_spaces {core} {
    global spaces
    foreach {name bytes bits} $spaces {
        set space [ipx::get_address_spaces -quiet $name -of_objects $core]
        if {$space eq ""} {
            set space [ipx::add_address_space $name $core]
        }
        set_property range $bytes $space
        set_property width $bits $space
        set_property master_address_space_ref $name [ipx::get_bus_interfaces $name -of_objects $core]
    }
}

# Define the registers in one address block, because PYNQ renames an IP with several blocks.
proc define_registers {core} {
    global control bytes registers
    set map [ipx::get_memory_maps -quiet $control -of_objects $core]
    if {$map eq ""} {
        set map [ipx::add_memory_map $control $core]
    }
    set_property slave_memory_map_ref $control [ipx::get_bus_interfaces $control -of_objects $core]
    foreach block [ipx::get_address_blocks -quiet -of_objects $map] {
        ipx::remove_address_block [get_property name $block] $map
    }
    set block [ipx::add_address_block reg0 $map]
    set_property base_address 0 $block
    set_property range $bytes $block
    set_property width 32 $block
    set_property usage register $block
    foreach {name offset access about fields} $registers {
        set register [ipx::add_register $name $block]
        set_property address_offset $offset $register
        set_property size 32 $register
        set_property access $access $register
        set_property description $about $register
        foreach {name low bits about} $fields {
            set field [ipx::add_field $name $register]
            set_property bit_offset $low $field
            set_property bit_width $bits $field
            set_property access $access $field
            set_property description $about $field
        }
    }
}

# Copy the files for software into the IP.
proc add_software {core} {
    global here root software
    file mkdir [file join $root software]
    set group [ipx::add_file_group -type misc {} $core]
    foreach name $software {
        file copy -force [file join $here $name] [file join $root software $name]
        ipx::add_file software/$name $group
    }
}

set here [file dirname [file normalize [info script]]]
set root [file join $here ip]
set part [part_of $part [expr {[info exists argv] ? $argv : ""}]]
check_files $here [concat $sources $software]
clear $root
set core [begin]
identify $core
define_interfaces $core
define_spaces $core
define_registers $core
add_software $core
ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::check_integrity $core
ipx::save_core $core
close_project -delete
file delete -force [file join $here ip_project]
puts "wrote $vendor:$library:$top:$version to $root"
