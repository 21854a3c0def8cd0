"""What groups of a network that branches keep and compute again: against pixels counted one by one, and by hand."""

from __future__ import annotations

import json
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from chains import minimal
from graphs import graphs
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hwgen.cli import main as cli
from hwgen.errors import InputError
from hwgen.explore import fusion, pyramid
from hwgen.explore.fronts import all_groupings, explore
from hwgen.network import shapes
from hwgen.network.graph import INPUT, Network
from hwgen.network.onnx import model_shapes
from hwgen.network.ops import Op
from hwgen.network.zoo.drawing import Drawing


def of(draw, shape=(2, 16, 16)) -> Network:
    drawing = Drawing("drawn", shape)
    return model_shapes.whole_of(drawing.model(draw(drawing)), "drawn")


def residual(net: Drawing) -> str:
    """A block as ResNet has it, behind a convolution."""
    first = net.conv("stem", "image", 3, 3)
    here = net.conv("b", net.conv("a", first, 4, 3), 3, 3, relu=None)
    return net.add("add", here, first, relu=True)


def halved(net: Drawing) -> str:
    """A block that halves the map, with a convolution in its shortcut; and one that keeps it."""
    first = net.conv("stem", "image", 3, 3)
    short = net.conv("short", first, 5, 2, 2, padding=0, relu=None)
    here = net.add("add1", net.conv("b", net.conv("a", first, 4, 3, 2, padding=1), 5, 3, relu=None), short)
    return net.add("add2", net.conv("d", net.conv("c", here, 4, 5), 5, 3, relu=None), here)


def fire(net: Drawing) -> str:
    """Two fire modules, and a pool between them."""
    here = net.conv("s1", "image", 2, 1)
    here = net.concat("cat1", net.conv("e1", here, 3, 1), net.conv("f1", here, 2, 3))
    here = net.conv("s2", net.max_pool("pool", here, 2, 2), 2, 1)
    return net.concat("cat2", net.conv("e2", here, 3, 1), net.conv("f2", here, 2, 3))


def u_net(net: Drawing) -> str:
    """Two levels."""
    skips, here = [], net.conv("first", "image", 2, 3)
    for level in range(2):
        skips.append(here)
        here = net.conv(f"down{level}", net.max_pool(f"pool{level}", here, 2, 2), 3, 3)
    for level in reversed(range(2)):
        here = net.conv(
            f"up{level}", net.concat(f"cat{level}", skips.pop(), net.upsample(f"above{level}", here, 2)), 2, 3
        )
    return here


def excited(net: Drawing) -> str:
    """A map scaled by a pixel that is made of all of it."""
    here = net.conv("first", "image", 4, 3)
    return net.conv("last", net.multiply("scale", here, net.conv("pixel", net.average("all", here), 4, 1)), 2, 1)


def needs(layer: Op, place: int, wanted: np.ndarray) -> np.ndarray:
    """The pixels of an input, ``(H, W)``, that these of the output need, by each window; no dilation."""
    height, width = layer.inputs[place].shape[1:]
    found = np.zeros((height, width), bool)
    for y, x in np.argwhere(wanted):
        if layer.kind == "upsample":
            found[y // layer.factors[0], x // layer.factors[1]] = True
        elif layer.kind == "depthtospace":
            found[y // layer.blocks[0], x // layer.blocks[1]] = True
        elif layer.kind == "spacetodepth":
            down, right = layer.blocks
            found[y * down : (y + 1) * down, x * right : (x + 1) * right] = True
        elif layer.kind in ("add", "concat", "copy") or (layer.kind == "mul" and not (place and layer.spread)):
            found[y, x] = True
        elif layer.kind == "mul":
            found[0, 0] = True
        else:
            window = layer.window
            top, left = y * window.stride[0] - window.padding[0], x * window.stride[1] - window.padding[1]
            rows = slice(max(top, 0), max(top + window.extent[0], 0))
            found[rows, max(left, 0) : max(left + window.extent[1], 0)] = True
    return found


def backwards(network: Network, tip: np.ndarray, *, hull: bool = False) -> dict[str, np.ndarray]:
    """The pixels of every map on which these of the last one depend.

    With ``hull`` all from the first to the last, as a pyramid has them: in the rectangle around what several layers
    need, in the gaps between windows, and in front of windows that lie in the padding wholly.
    """
    shape = {INPUT: network.input.shape[1:], **{layer.name: layer.output.shape[1:] for layer in network.layers}}
    found = {name: np.zeros(size, bool) for name, size in shape.items()}
    found[network.layers[-1].name] = tip
    for layer, edges in reversed(list(zip(network.layers, network.edges, strict=True))):
        wanted = found[layer.name]
        for place, edge in enumerate(edges):
            if hull and wanted.any() and layer.taps > 1:
                found[edge][_between(layer, wanted)] = True
            else:
                found[edge] = found[edge] | needs(layer, place, wanted)
        for edge in edges if hull else ():
            found[edge][_rectangle(found[edge])] = True
    return found


def _rectangle(pixels: np.ndarray) -> tuple[slice, slice]:
    """Around these pixels."""
    rows, columns = (np.flatnonzero(pixels.any(axis=axis)) for axis in (1, 0))
    return (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)) if len(rows) else (slice(0), slice(0))


def _between(layer: Op, wanted: np.ndarray) -> tuple[slice, ...]:
    """From the first row and column of the first window of a rectangle of outputs to the last of the last one."""
    window, found = layer.window, []
    for axis, outputs in enumerate(_rectangle(wanted)):
        first, last = (
            place * window.stride[axis] - window.padding[axis] for place in (outputs.start, outputs.stop - 1)
        )
        found.append(slice(max(first, 0), max(last + window.extent[axis], 0)))
    return tuple(found)


def kept(network: Network, tip: tuple[int, int]) -> int:
    """Words between two pyramids at most: computed, because a pyramid needed them, and needed by one to come.

    Every value is computed once, by the first pyramid that needs it; a layer takes its inputs when it computes. The
    first rows of pyramids, which are taller than those inside the map, are left out, as in the papers.
    """
    height, width = network.output.shape[1:]
    readers = [(layer, edges) for layer, edges in zip(network.layers, network.edges, strict=True)]
    channels = {INPUT: network.input.channels, **{layer.name: layer.output.channels for layer in network.layers}}
    most = dict.fromkeys(channels, 0)
    done = np.zeros((height, width), bool)
    for y, x in product(range(0, height, tip[0]), range(0, width, tip[1])):
        done[y : y + tip[0], x : x + tip[1]] = True
        if y < height // 3:
            continue
        computed, everything = backwards(network, done), backwards(network, np.ones_like(done))
        later = {name: np.zeros_like(pixels) for name, pixels in computed.items()}
        for layer, edges in readers:
            for place, edge in enumerate(edges):
                later[edge] |= needs(layer, place, everything[layer.name] & ~computed[layer.name])
        for name, pixels in computed.items():
            most[name] = max(most[name], int((pixels & later[name]).sum()))
    return sum(channels[name] * count for name, count in most.items())


@pytest.mark.parametrize(
    ("draw", "tip"),
    [(residual, (1, 1)), (halved, (1, 1)), (fire, (1, 1)), (u_net, (4, 4))],
    ids=lambda one: str(one)[:14],
)
def test_words_kept_pixel_by_pixel(draw, tip):
    """Of maps large enough for a pyramid inside them: just as many as are counted one by one."""
    network = of(draw, (2, 28, 28) if draw is u_net else (2, 16, 16))
    assert pyramid.tips_of_tails(network)[0] == tip
    assert pyramid.reuse_words(network) == kept(network, tip)


def test_words_kept_of_a_residual_block_by_hand():
    """Two rows of each map that a 3x3 window reads, and two pixels more; nothing of what the sum alone reads."""
    network = of(residual)
    assert pyramid.reuse_words(network) == (2 + 3 + 4) * 2 * (16 + 1)
    costs = {names(network, span): words for span, words in fusion.storage_words(network).items()}
    assert costs == {"stem": 2 * 34, "stem-add": 9 * 34, "a-add": 7 * 34}


def names(network: Network, span) -> str:
    first, last = network.layers[span[0]].name, network.layers[span[1] - 1].name
    return first if first == last else f"{first}-{last}"


def test_a_shortcut_keeps_what_windows_do_not():
    """A shortcut past a pool of 2x2 and three windows: the pool shares no rows, but the map is far ahead of the sum."""

    def draw(net: Drawing) -> str:
        here = net.conv("c", net.conv("b", net.conv("a", "image", 2, 3), 2, 3), 2, 3, relu=None)
        return net.add("add", here, "image")

    network = of(draw)
    # rows 0 to 3 of the image are there when row 0 of the sum is made, and row 1 is the next one that it takes
    assert pyramid.reuse_words(network) == 2 * (3 + 2 + 2) * (16 + 1)


def test_a_map_that_waits_for_all_of_it_is_kept():
    """What a pixel scales, and all before it; no less than what is kept pixel by pixel."""
    network = of(excited, (2, 6, 6))
    counted = pyramid.reuse_words(network)
    assert counted >= kept(network, (1, 1))
    maps = {layer.name: layer.output.values for layer in network.layers}
    assert counted == network.input.values + maps["first"] + maps["all"] + maps["pixel"]


@settings(max_examples=25, deadline=None)
@given(network=graphs(max_steps=3, max_side=5), data=st.data())
def test_never_less_than_is_kept(network, data):
    """On any graph: bands are rectangles, and go on past the ends of a map, so they may hold more, but no less."""
    place = data.draw(st.sampled_from(network.boundaries[1:]))
    linked = pyramid.Linked.of(network)
    part = network.first(place)
    (tip, *_), words = pyramid.tips_of_tails(linked.head(place)), pyramid.reuse_words_of_tails(linked.head(place))
    assert words[0] >= kept(part, tip)


def recomputed(network: Network, tip: tuple[int, int]) -> tuple[int, int]:
    """Multiplications, and words read, where every pyramid is computed from its part of the input."""
    height, width = network.output.shape[1:]
    total = read = 0
    for y, x in product(range(0, height, tip[0]), range(0, width, tip[1])):
        wanted = np.zeros((height, width), bool)
        wanted[y : y + tip[0], x : x + tip[1]] = True
        found = backwards(network, wanted, hull=True)
        total += sum(int(found[layer.name].sum()) * layer.weight_count for layer in network.layers)
        read += network.input.channels * int(found[INPUT].sum())
    return total, read


@settings(max_examples=25, deadline=None)
@given(network=graphs(max_steps=3, max_side=5))
def test_work_done_again_pixel_by_pixel(network):
    """Rows and columns are counted apart, which only differs for windows that lie in the padding with one of them."""
    assume(all(max(layer.window.padding) < min(layer.window.extent) for layer in network.layers))
    work, (tip, *_) = pyramid.recomputation(network), pyramid.tips_of_tails(network)
    assert (work.multiplications + work.extra_multiplications, work.input_words) == recomputed(network, tip)
    assert work.multiplications == network.macs


def groupings(network: Network):
    for count in range(len(network.cuts) + 1):
        for cuts in combinations(network.cuts, count):
            yield tuple(pairwise((0, *cuts, len(network.layers))))


@settings(max_examples=25, deadline=None)
@given(network=graphs(max_steps=5, max_side=6))
def test_fronts_as_listed(network):
    """All groupings of a graph, each group planned as a network of its own: none is better than the fronts say."""
    parts = {}
    for span in combinations(network.boundaries, 2):
        begin, end = span
        linked = pyramid.Linked.of(network)
        of_tails = dict(zip(linked.head(end).boundaries, pyramid.reuse_words_of_tails(linked.head(end)), strict=False))
        moved = network.layers[begin].input.values + network.layers[end - 1].output.values
        parts[span] = of_tails[begin], moved
    listed = [
        (max(parts[span][0] for span in groups), sum(parts[span][1] for span in groups))
        for groups in groupings(network)
    ]
    points = fusion.storage_traffic(network)
    assert [(point.storage_words, point.traffic_words) for point in points] == minimal(listed)
    assert sorted(all_groupings(network)) == sorted(listed)
    multipliers = [layer.weight_count % 7 for layer in network.layers]
    listed = [
        (max(sum(multipliers[b:e]) for b, e in groups), sum(parts[span][1] for span in groups))
        for groups in groupings(network)
    ]
    assert [(point.dsp, point.traffic_words) for point in fusion.dsp_traffic(network, multipliers)] == minimal(listed)


@settings(max_examples=25, deadline=None)
@given(network=graphs(max_steps=5, max_side=6))
def test_a_group_by_itself_costs_as_much(network):
    """What is found for a group among all that end with it is what it costs alone, but for the copy in front."""
    words = fusion.storage_words(network)
    for (begin, end), found in words.items():
        if network.copy_at(begin) is None and begin:
            assert pyramid.reuse_words(network.part(begin, end)) == found


def test_a_pixel_may_be_the_first_factor():
    """In the model; the layer takes it second."""
    drawing = Drawing("drawn", (2, 6, 6))
    model = drawing.model(excited(drawing))
    (product_node,) = (node for node in model.graph.node if node.op_type == "Mul")
    product_node.input[:] = product_node.input[::-1]
    network = model_shapes.whole_of(model, "drawn")
    assert network.edges == of(excited, (2, 6, 6)).edges
    assert dict(zip((layer.name for layer in network.layers), network.edges, strict=True))["scale"] == (
        "first",
        "pixel",
    )


def test_what_is_no_graph_is_its_first_linear_part():
    """Two maps that leave the model, or an operator between the branches that is not known."""
    drawing = Drawing("drawn", (2, 6, 6))
    model = drawing.model(residual(drawing))
    (sum_node,) = (node for node in model.graph.node if node.op_type == "Add")
    sum_node.op_type = "Pow"
    network = model_shapes.whole_of(model, "drawn")
    assert [layer.name for layer in network.layers] == ["stem"]
    assert network.left_out[0].startswith("a fork after Relu stem_relu into ")


def test_groups_that_end_inside_a_block():
    network = of(residual)
    with pytest.raises(InputError, match=r"^groups must end where one map crosses, not after a$"):
        fusion.storage_multiplications(network, [(0, 2), (2, 4)])


@pytest.mark.parametrize(
    ("name", "layers", "cuts"),
    [("resnet8", 13, 4), ("mobilenetv2@64x64", 63, 32), ("squeezenet@64x64", 38, 21), ("unet@64x64", 27, 5)],
)
def test_built_in_networks(name, layers, cuts):
    """Their whole graphs, up to the dense layer; the ends of the front by hand."""
    network = shapes.graph(name)
    assert (len(network.layers), len(network.cuts)) == (layers, cuts)
    found = explore(network)
    first, last = found.storage_traffic[0], found.storage_traffic[-1]
    assert last.groups == ((0, layers),)
    assert last.traffic_words == network.input.values + network.output.values
    moved = [network.input.values, *(layer.output.values for layer in network.layers)]
    most = sum(moved[begin] + moved[end] for begin, end in pairwise(network.boundaries))
    assert last.traffic_words <= first.traffic_words <= most
    for fronts in (found.storage_traffic, found.dsp_traffic, found.storage_multiplications):
        assert {place for point in fronts for span in point.groups for place in span} <= {*network.boundaries}
    assert min(point.cycles for point in found.dsp_cycles) >= 1


def test_explored_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["explore", "resnet8", "--board", "zedboard", "--json", "fronts.json"]) == 0
    assert capsys.readouterr().out.startswith("resnet8: 13 layers, 16 groupings, 12,500,992 MACs, 76,720 weights\n")
    written = json.loads((tmp_path / "fronts.json").read_text())
    names = [layer["name"] for layer in written["layers"]]
    for point in written["fronts"]["storage_traffic"]:
        assert [name for group in point["groups"] for name in group] == names
    assert cli.main(["explore", "resnet8", "--first", "4"]) == 0
    capsys.readouterr()
    assert cli.main(["explore", "resnet8", "--first", "2"]) == 2
    assert capsys.readouterr().err.startswith("hwgen: resnet8 can't be cut between stack1_conv1 and stack1_conv2: the ")
