"""The Tcl that packages an IP or an engine, run by tclsh with stand-ins for Vivado's commands; no Vivado has run it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import SMALL
from refusals import refusals_in
from register_maps import shell
from vivado import (
    PARTS,
    TCLSH,
    Packaged,
    check_interfaces,
    check_registers,
    edit,
    folder_of,
    needs_tcl,
    packaged,
    refused,
)

import hwgen
from hwgen import boards, emit
from hwgen.emit import vivado_files, wrapper
from hwgen.emit.vivado_files import ip_of
from hwgen.gateware.bus.wrapper import Wrapper
from hwgen.network import golden
from hwgen.verilog import convert


def check(folder: Path, made: Packaged, *, plan: bool = True) -> None:
    """The IP against what lies in the folder."""
    document = json.loads((folder / "registers.json").read_text())
    top = document["module"]
    root = "hwgen:user"
    core = made.get("core", root)
    assert core["name"] == top
    assert document["build_hash"] in core["description"]
    assert int(core["core_revision"]) == int(document["build_hash"], 16) % 2**31
    name = top.removesuffix("_axi")
    sources = {path.name for path in folder.iterdir() if path.suffix in (".v", ".mem")} - {f"{name}_tb.v"}
    assert made.of("source") == sources
    software = {f"{name}_driver.{kind}" for kind in ("py", "c", "h")}
    software |= {f"{name}_linux.py", f"{name}_registers.h", f"{name}_registers.py", "registers.json"}
    software |= {"plan.json"} if plan else set()
    assert made.of("file") == {f"{root}/xilinx_miscfiles/software/{each}" for each in software}
    for each in software:
        assert (folder / "ip" / "software" / each).read_bytes() == (folder / each).read_bytes()

    streams = [each["name"] for side in ("inputs", "outputs") for each in document[side]]
    names = {*streams, "s_axi_control", "aclk", "aresetn", "interrupt"}
    assert made.of("bus_interface") == {f"{root}/{each}" for each in names}
    check_interfaces(made, folder, root, top)
    assert made.get("bus_interface", f"{root}/s_axi_control")["slave_memory_map_ref"] == "s_axi_control"
    given = {
        path.removeprefix(f"{root}/"): made.get("bus_parameter", path)["value"] for path in made.of("bus_parameter")
    }
    assert set(given.pop("aclk/ASSOCIATED_BUSIF").split(":")) == {*streams, "s_axi_control"}
    assert given == {
        "aclk/ASSOCIATED_RESET": "aresetn",
        "aresetn/POLARITY": "ACTIVE_LOW",
        "interrupt/SENSITIVITY": "LEVEL_HIGH",
    }
    check_registers(made, root, document)
    assert not (folder / "ip_project").exists()


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return (
        hwgen.load("decoilfnet-example")
        .plan("zedboard", dsp=20, multipliers="dsp")
        .build(tmp_path_factory.mktemp("ip") / "built")
    )


@pytest.fixture
def folder(built, tmp_path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "a folder"))


@needs_tcl
@pytest.mark.parametrize("inference", ["names", "nothing", "other"])
def test_the_ip_is_the_design(folder, inference):
    """Whatever Vivado infers by itself; and again over what is there."""
    for _ in range(2):
        check(folder, packaged(folder, inference=inference))


def test_the_verilog_says_so_too(built):
    """Parameters of clock, reset and interrupt stand before the ports, and nowhere else, for use without an IP."""
    (wrapped,) = built.glob("*_axi.v")
    found = re.findall(r'\(\* X_INTERFACE_PARAMETER = "(.*)" \*\)\n +(\w+) +wire (\w+),?\n', wrapped.read_text())
    assert found == [
        ("ASSOCIATED_BUSIF s_axis:m_axis:s_axi_control, ASSOCIATED_RESET aresetn", "input", "aclk"),
        ("POLARITY ACTIVE_LOW", "input", "aresetn"),
        ("SENSITIVITY LEVEL_HIGH", "output", "interrupt"),
    ]
    assert wrapped.read_text().count("X_INTERFACE") == 3


_REST = (".v", "_driver.py", "_linux.py", "_driver.c", "_driver.h", "_registers.h", "_registers.py")


@needs_tcl
def test_several_inputs(tmp_path):
    """Two inputs, three outputs, a wrapper alone: its accelerator is an empty file."""
    config, folder = shell(2, 3), tmp_path / "built"
    files = convert(Wrapper(config, "net"), "net_axi")
    files |= dict.fromkeys((f"net{each}" for each in _REST), b"")
    files["registers.json"] = json.dumps(wrapper.to_json(config, "net_axi")).encode()
    files[vivado_files.PACKAGING] = vivado_files.packaging(ip_of(config, "net", files), PARTS[0])
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    check(folder, packaged(folder), plan=False)


@needs_tcl
def test_a_group(tmp_path):
    """An IP for each of several groups, without a plan of its own."""
    design = hwgen.load("decoilfnet-example").plan("zedboard", dsp=20, multipliers="dsp")
    (source,) = design.network.input_maps
    frames = np.zeros((1, *source.shape), source.type.dtype)
    maps = [frames, golden.run(design.network, frames)]
    emit.build_groups("{}", design.plan.configs(), maps, tmp_path / "built", "# A report", board=boards.load("pynq-z2"))
    (group,) = (path for path in (tmp_path / "built").iterdir() if path.is_dir())
    check(group, packaged(group), plan=False)


@needs_tcl
def test_a_part(folder):
    """The board's, another one, one that Vivado lacks, none."""
    assert f"\nset part {boards.load('zedboard').part}\n" in (folder / vivado_files.PACKAGING).read_text()
    packaged(folder, "--part", boards.load("vc709").part)
    assert "this Vivado has no part xc9; install its family" in refused(folder, "--part", "xc9")
    assert "accepts --part PART after -tclargs, not --board zedboard" in refused(folder, "--board", "zedboard")
    edit(folder, f"set part {boards.load('zedboard').part}", "set part {}")
    assert "built for no part; give one: -tclargs --part PART" in refused(folder)
    packaged(folder, "--part", PARTS[0])


@needs_tcl
def test_what_is_in_the_way(folder):
    (folder / "ip").mkdir()
    (folder / "ip" / "notes").write_text("mine")
    assert refused(folder).endswith("ip is there already and is not an IP; move it away")
    assert (folder / "ip" / "notes").read_text() == "mine"
    shutil.rmtree(folder / "ip")
    (folder / "registers.json").unlink()
    assert f"registers.json is missing in {folder}; build the design again" in refused(folder)
    assert not (folder / "ip").exists()


@needs_tcl
@pytest.mark.parametrize(("old", "new", "reason"), refusals_in("package.txt"))
def test_the_stand_ins_refuse(folder, old, new, reason):
    """What is wrong in a script is seen."""
    edit(folder, old, new)
    assert re.search(reason, refused(folder))


@needs_tcl
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TDATA s_axis_tdata", "TDATA m_axis_tdata"),
        (" TLAST m_axis_tlast", ""),
        ("s_axis interface:axis slave", "s_axis interface:axis master"),
        ("POLARITY ACTIVE_LOW", "POLARITY ACTIVE_HIGH"),
        ("FRAMES 0x028", "FRAMES 0x02c"),
        ("{ENABLE 0 1 ", "{ENABLE 1 1 "),
        ("    registers.json\n", ""),
    ],
)
def test_the_checks_see(folder, old, new):
    """What is wrong in the IP is seen."""
    edit(folder, old, new)
    made = packaged(folder, inference="nothing")
    with pytest.raises((AssertionError, KeyError)):
        check(folder, made)


def words(texts: Iterable[str]) -> list[str]:
    """Words of a script as Tcl reads them, each as its characters' numbers."""
    assert TCLSH
    lines = [
        f"set word {vivado_files.tcl_word(text)}; puts [join [lmap c [split $word {{}}] {{scan $c %c}}]]"
        for text in texts
    ]
    done = subprocess.run([TCLSH], input="\n".join(lines), capture_output=True, text=True, check=True, timeout=60)
    return ["".join(chr(int(each)) for each in line.split()) for line in done.stdout.split("\n")[:-1]]


@needs_tcl
def test_words():
    """Any text is one word, in which nothing is put in place of something else."""
    awkward = [
        "",
        " ",
        "a b",
        "$x",
        "[exit 1]",
        "{",
        "}",
        "\\",
        "a\\",
        "{}",
        "#",
        ";",
        '"',
        "\n",
        "a\tb",
        "-x",
        "*",
        "\x7f",
    ]
    assert words(awkward) == awkward
    assert words(["é"]) == ["?"]


def test_no_text_leaves_its_word():
    @given(st.text(st.characters(max_codepoint=127), max_size=6))
    def each(text):
        word = vivado_files.tcl_word(text)
        assert "\n" not in word
        assert re.fullmatch(r"(?:\{[^{}\\]*\}|(?:[\w./:-]|\\.|\\u[0-9a-f]{4})+)", word)

    each()


def test_most_streams():
    """Sixteen inputs and outputs, each an interface by its own name."""
    text = vivado_files.packaging(ip_of(shell(16, 16), "net", ["net.v", "net_axi.v"]), "xc7z020clg484-1").decode()
    assert re.findall(r"^    ([sm]_axis_\d+) interface:axis (\w+) ", text, re.MULTILINE) == [
        *((f"s_axis_{number}", "slave") for number in range(16)),
        *((f"m_axis_{number}", "master") for number in range(16)),
    ]


marks = needs_tcl


def check_engine(folder: Path, made: Packaged, bus_bytes: int = 8) -> None:
    """The IP against what lies in the folder."""
    document = json.loads((folder / "registers.json").read_text())
    root = "hwgen:user"
    core = made.get("core", root)
    assert core["name"] == document["module"] == "engine_axi"
    assert core["description"] == "The programmable engine, written by hwgen; build hash 0x0123456789abcdef"
    assert made.of("source") == {"engine.v", "engine_axi.v"}
    software = {f"engine_{each}" for each in ("registers.h", "registers.py", "driver.c", "driver.h")}
    software |= {"engine_driver.py", "engine_linux.py", "registers.json", "net.program"}
    assert made.of("file") == {f"{root}/xilinx_miscfiles/software/{each}" for each in software}
    names = {"m_axi_mem", "s_axi_control", "aclk", "aresetn", "interrupt"}
    assert made.of("bus_interface") == {f"{root}/{each}" for each in names}
    check_interfaces(made, folder, root, "engine_axi")
    assert made.get("bus_interface", f"{root}/m_axi_mem")["interface_mode"] == "master"
    assert made.get("bus_interface", f"{root}/m_axi_mem")["master_address_space_ref"] == "m_axi_mem"
    assert made.get("bus_interface", f"{root}/s_axi_control")["slave_memory_map_ref"] == "s_axi_control"
    assert made.of("address_space") == {f"{root}/m_axi_mem"}
    space = made.get("address_space", f"{root}/m_axi_mem")
    assert (int(space["range"]), int(space["width"])) == (1 << 32, 8 * bus_bytes)
    given = {
        path.removeprefix(f"{root}/"): made.get("bus_parameter", path)["value"] for path in made.of("bus_parameter")
    }
    assert given == {
        "aclk/ASSOCIATED_BUSIF": "m_axi_mem:s_axi_control",
        "aclk/ASSOCIATED_RESET": "aresetn",
        "aresetn/POLARITY": "ACTIVE_LOW",
        "interrupt/SENSITIVITY": "LEVEL_HIGH",
        "m_axi_mem/MAX_BURST_LENGTH": "256",
        "m_axi_mem/NUM_READ_OUTSTANDING": str(SMALL.outstanding),
        "m_axi_mem/NUM_WRITE_OUTSTANDING": str(SMALL.outstanding),
        "m_axi_mem/SUPPORTS_NARROW_BURST": "1" if bus_bytes >= 16 else "0",
    }
    check_registers(made, root, document)
    assert not (folder / "ip_project").exists()


@marks
@pytest.mark.parametrize(("inference", "bus_bytes"), [("names", 4), ("nothing", 8), ("other", 16), ("names", 64)])
def test_the_ip_is_the_engine(tmp_path, inference, bus_bytes):
    """Whatever Vivado infers by itself; and again over what is there."""
    folder = folder_of(tmp_path, bus_bytes)
    for _ in range(2):
        check_engine(folder, packaged(folder, inference=inference), bus_bytes)


@marks
def test_the_verilog_of_an_engine_says_so_too(tmp_path):
    """What Vivado should know of interfaces stands before ports, for use without an IP."""
    text = (folder_of(tmp_path) / "engine_axi.v").read_text()
    found = re.findall(r'\(\* X_INTERFACE_PARAMETER = "(.*)" \*\)\n +\w+ +wire (?:\[\d+:0\] )?(\w+),?\n', text)
    assert found == [
        ("ASSOCIATED_BUSIF m_axi_mem:s_axi_control, ASSOCIATED_RESET aresetn", "aclk"),
        ("POLARITY ACTIVE_LOW", "aresetn"),
        ("XIL_INTERFACENAME m_axi_mem, SUPPORTS_NARROW_BURST 0, MAX_BURST_LENGTH 256, NUM_READ_OUTSTANDING 32, "
         "NUM_WRITE_OUTSTANDING 32", "m_axi_mem_awaddr"),
        ("SENSITIVITY LEVEL_HIGH", "interrupt"),
    ]  # fmt: skip
    assert text.count("X_INTERFACE") == len(found)


@marks
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RLAST m_axi_mem_rlast", "RLAST m_axi_mem_wlast"),
        (" AWLEN m_axi_mem_awlen", ""),
        ("m_axi_mem interface:aximm master", "m_axi_mem interface:aximm slave"),
        ("m_axi_mem 4294967296 64", "m_axi_mem 4294967296 32"),
        ("SUPPORTS_NARROW_BURST 0", "SUPPORTS_NARROW_BURST 1"),
        ("PROGRAM_BASE 0x040", "PROGRAM_BASE 0x044"),
        ("    net.program\n", ""),
    ],
)
def test_the_checks_of_an_engine_see(tmp_path, old, new):
    """What is wrong in the IP is seen."""
    folder = folder_of(tmp_path)
    edit(folder, old, new)
    made = packaged(folder, inference="nothing")
    with pytest.raises((AssertionError, KeyError)):
        check_engine(folder, made)


@marks
def test_the_stand_ins_refuse_an_engine(tmp_path):
    folder = folder_of(tmp_path)
    edit(folder, "m_axi_mem 4294967296 64", "m_axi_mem 4294967296 48")
    assert 'property width of address_space must not be "48"' in refused(folder)
