"""Blocked loop nests: exact counts against a simulation with sets of elements, and the tiles of Peemen and Cecconi."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import permutations, product

import numpy as np
import pytest
from chains import PEEMEN
from papers import schedules
from refusals import refusals_in

from hwgen.blocking import cecconi, count, on_board, peemen
from hwgen.blocking.problem import DIMS, OPERANDS, BlockedLoop, Nest, Problem, indexes
from hwgen.blocking.tiling import TileWords, candidates
from hwgen.errors import ConfigError, InputError, PlanError
from hwgen.network import shapes

Ranges = dict[str, tuple[int, int]]


def walk(nest: Nest, position: int) -> Iterator[tuple[Ranges, int]]:
    """Ranges of all dimensions inside ``position``, in the order in which they run, and the loop that stepped to them.

    The first range of all comes with the number of loops.
    """
    steps = []
    reached: dict[str, int] = dict.fromkeys(DIMS, 1)
    for loop in nest.loops:
        steps.append(reached[loop.dim])
        reached[loop.dim] = loop.extent

    def run(level: int, ranges: Ranges, stepped: int) -> Iterator[tuple[Ranges, int]]:
        if level < position:
            yield ranges, stepped
            return
        dim = nest.loops[level].dim
        begin, end = ranges[dim]
        for start in range(begin, end, steps[level]):
            inner = {**ranges, dim: (start, min(start + steps[level], end))}
            yield from run(level - 1, inner, level if start > begin else stepped)

    everything: Ranges = {dim: (0, nest.problem.size(dim)) for dim in DIMS}
    yield from run(len(nest.loops) - 1, everything, len(nest.loops))


def elements(problem: Problem, operand: str, ranges: Ranges) -> set[tuple[int, ...]]:
    """Return the elements of ``operand`` that the statements within ``ranges`` access, without padding."""
    if operand == "weights" and not problem.weighted:
        return set()
    spans = {dim: range(*ranges[dim]) for dim in DIMS}
    if operand == "weights":
        return set(product(spans["K"], spans["C"], spans["Fh"], spans["Fw"]))
    if operand == "output":
        return set(product(spans["K"], spans["Y"], spans["X"]))
    rows = {y * problem.stride[0] + f - problem.pad[0] for y in spans["Y"] for f in spans["Fh"]}
    columns = {x * problem.stride[1] + f - problem.pad[1] for x in spans["X"] for f in spans["Fw"]}
    return {
        (channel, row, column)
        for channel, row, column in product(spans["C"], rows, columns)
        if 0 <= row < problem.height and 0 <= column < problem.width
    }


def simulate(
    nest: Nest,
    operand: str,
    position: int,
    *,
    overlap: bool = False,
    scope: int | None = None,
    first_read: bool = False,
) -> tuple[int, int, int]:
    """Words read into a buffer at ``position``, words written back, and the most it held.

    Every group of channels does the same with other data.
    """
    reads = writes = most = 0
    held: set[tuple[int, ...]] = set()
    block: Ranges = {}
    seen: set[tuple[int, ...]] = set()
    for ranges, stepped in walk(nest, position):
        relevant = {dim: ranges[dim] for dim in DIMS if indexes(operand, dim)}
        wanted = elements(nest.problem, operand, ranges)
        if scope is not None and stepped >= position + scope:
            kept: set[tuple[int, ...]] = set()
        elif overlap:
            kept = held & wanted
        else:
            kept = wanted if relevant == block else set()
        fetched = wanted - kept
        if operand == "output":
            reads += len(fetched) if first_read else len(fetched & seen)
            writes += len(fetched)  # what comes in leaves again, sooner or later
            seen |= wanted
        else:
            reads += len(fetched)
        held, block = wanted, relevant
        most = max(most, len(held))
    return reads * nest.problem.groups, writes * nest.problem.groups, most


def random_problem(rng: random.Random) -> Problem:
    """Small: strides up to 3, windows up to 4 x 3, padding, maps that end before or behind the last window."""
    stride = (rng.randint(1, 3), rng.randint(1, 3))
    window, pad = (rng.randint(1, 3), rng.randint(1, 4)), (rng.randint(0, 2), rng.randint(0, 2))
    X, Y = rng.randint(1, 6), rng.randint(1, 4)
    spare = rng.randint(-1, 2)
    return Problem(
        name="random",
        X=X,
        Y=Y,
        C=rng.randint(1, 3),
        K=rng.randint(1, 4),
        Fw=window[1],
        Fh=window[0],
        width=max(1, (X - 1) * stride[1] + window[1] - 2 * pad[1] + spare),
        height=max(1, (Y - 1) * stride[0] + window[0] - 2 * pad[0] + spare),
        stride=stride,
        pad=pad,
        groups=rng.randint(1, 2),
        weighted=rng.random() < 0.9,
    )


def random_nest(rng: random.Random, problem: Problem) -> Nest:
    """Up to three loops a dimension with any extents, interleaved in any way."""
    chains = {
        dim: [*sorted(rng.randint(1, problem.size(dim)) for _ in range(rng.randint(0, 2))), problem.size(dim)]
        for dim in DIMS
    }
    loops = []
    while any(chains.values()):
        dim = rng.choice([dim for dim, extents in chains.items() if extents])
        loops.append(BlockedLoop(dim, chains[dim].pop(0)))
    return Nest(problem, tuple(loops))


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 8))])
def test_the_model_equals_the_simulation_on_random_nests(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(75):
        nest = random_nest(rng, random_problem(rng))
        for operand in OPERANDS:
            options = {
                "overlap": rng.random() < 0.5,
                "scope": rng.choice([None, None, 0, 1, 2]),
                "first_read": rng.random() < 0.3,
            }
            place = rng.randint(0, len(nest.loops))
            moved = count.traffic(nest, {operand: [place]}, **options)[operand][0]
            reads, writes, most = simulate(nest, operand, place, **options)
            told = f"seed {seed}: {nest.problem}, {nest}, {operand} at {place}, {options}"
            assert (moved.reads, moved.writes) == (reads, writes), told
            assert moved.capacity >= most, told


def test_the_simulation_by_hand() -> None:
    """Three outputs of a window of two: by hand, six multiply-adds over four inputs."""
    problem = Problem.valid("by hand", X=3, Y=1, C=1, K=1, Fw=2)
    nest = Nest.parse(problem, "Fw X")
    # at the statement: inputs 0 1 1 2 2 3, of which 1 and 2 are fetched twice; weights a b a b a b; outputs stay for Fw
    assert simulate(nest, "input", 0) == (6, 0, 1)
    assert simulate(nest, "input", 0, overlap=True) == (4, 0, 1)
    assert simulate(nest, "input", 1) == (6, 0, 2)
    assert simulate(nest, "input", 1, overlap=True) == (4, 0, 2)
    assert simulate(nest, "weights", 0) == (6, 0, 1)
    assert simulate(nest, "weights", 1) == (2, 0, 2)
    assert simulate(nest, "output", 0) == (0, 3, 1)
    # with the window outside, partial sums of the first tap come back for the second
    assert simulate(Nest.parse(problem, "X Fw"), "output", 0) == (3, 6, 1)
    assert simulate(Nest.parse(problem, "X Fw"), "output", 0, first_read=True) == (6, 6, 1)


def test_strings() -> None:
    problem = Problem.parse("56x56x128->256 k3")
    text = "Fw=3 Fh=3 X0=8 Y0=8 C0=16 K0=16 X1=56 Y1=56 C1=128 K1=256"
    nest = Nest.parse(problem, text)
    assert str(nest) == text
    assert nest.tile(6) == {"X": 8, "Y": 8, "C": 16, "K": 16, "Fw": 3, "Fh": 3}
    assert str(Nest.parse(problem, "Fw Fh X Y C K")) == "Fw=3 Fh=3 X0=56 Y0=56 C0=128 K0=256"
    assert count.capacity(problem, "input", nest.tile(6)) == 10 * 10 * 16


@pytest.mark.parametrize(("text", "message"), refusals_in("blocking_strings_that_are_refused.txt"))
def test_strings_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Nest.parse(Problem.parse("56x56x128->256 k3"), text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("56x56x128->256 k3", (56, 56, 1, 1, 56, 56)),
        ("13x10x4->8 k4 s3", (4, 5, 1, 1, 10, 13)),
        ("13x10x4->8 k5x3 s2 p2 g2", (6, 7, 2, 2, 10, 13)),
        ("1x1x200->100", (1, 1, 0, 0, 1, 1)),
    ],
)
def test_layers_in_words(text: str, size: tuple[int, ...]) -> None:
    problem = Problem.parse(text)
    assert (problem.X, problem.Y, *problem.pad, problem.width, problem.height) == size


@pytest.mark.parametrize(("text", "message"), refusals_in("blocking_layers_that_are_refused.txt"))
def test_layers_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Problem.parse(text)


def test_pools_and_normalisation() -> None:
    pool = Problem.of(shapes.load("vgg16").layers[2])
    assert (pool.groups, pool.C, pool.K, pool.weight_words) == (64, 1, 1, 0)
    assert pool.input_words == 64 * 224 * 224
    lrn = Problem.lrn("lrn", 55, 55, 96)
    nest = Nest.parse(lrn, "Fw Fh X Y C K")
    assert count.loads(nest, "input", 1) == 55 * 55 * (96 * 5 - 2 * (2 + 1))  # the outermost windows are cut
    assert count.loads(nest, "input", 3) == lrn.input_words


def test_positions_are_checked() -> None:
    nest = Nest.parse(Problem.parse("4x4x2->2 k3"), "Fw Fh X Y C K")
    with pytest.raises(ConfigError, match="growing positions"):
        count.traffic(nest, {"input": [3, 2]})
    with pytest.raises(ConfigError, match="operand must be"):
        count.traffic(nest, {"image": [1]})


# -- many tiles at once


@pytest.mark.parametrize("seed", range(3))
def test_tilings_equal_nests(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        problem = random_problem(rng)
        tiling = TileWords(
            problem, {dim: sorted({1, rng.randint(1, problem.size(dim)), problem.size(dim)}) for dim in DIMS}
        )
        order = rng.sample(DIMS, len(DIMS))
        scope = rng.choice([None, 0, 1, 2])
        for operand in OPERANDS:
            plain = np.broadcast_to(tiling.loads(operand, order, scope=scope), tiling.shape).ravel()
            swept = np.broadcast_to(tiling.swept(operand, order[0]), tiling.shape).ravel()
            room = np.broadcast_to(tiling.room(operand), tiling.shape).ravel()
            for index in rng.sample(range(plain.size), min(8, plain.size)):
                tile = tiling.tile(index)
                nest = Nest.tiled(problem, tile, order)
                assert plain[index] == count.loads(nest, operand, len(DIMS), scope=scope)
                assert swept[index] == count.loads(nest, operand, len(DIMS), overlap=True, scope=1)
                assert room[index] == count.capacity(problem, operand, tile)


def test_left_out_sizes_are_no_better() -> None:
    rng = random.Random(5)
    for _ in range(25):
        problem = random_problem(rng)
        every = TileWords(problem, {dim: list(range(1, problem.size(dim) + 1)) for dim in DIMS})
        some = TileWords(problem, candidates(problem))
        for direction in rng.sample(DIMS, 2):
            limit = rng.randint(3, 60)
            found = []
            for tiling in (every, some):
                moved = sum(tiling.swept(operand, direction) for operand in OPERANDS)
                room = sum(tiling.room(operand) for operand in OPERANDS)
                found.append(np.where(room <= limit, moved, 1 << 60).min())
            assert found[0] == found[1], (problem, direction, limit)


# -- Peemen

ITERATIONS = 866_384_000


def test_peemen_table_1() -> None:
    layer = peemen.layer()
    assert layer.macs == ITERATIONS
    for memory, found in zip(PEEMEN, peemen.optimise(layer, tuple(PEEMEN)), strict=True):
        tile, direction, printed, words = schedules.TABLE[memory]
        assert tuple(found.tile[letter] for letter in "rqmnkl") == tile
        assert found.direction == direction
        assert (found.set_words, found.input, found.weights, found.output) == PEEMEN[memory]
        assert found.set_words == words
        assert f"{found.per_iteration:.3f}" == printed


def test_what_peemen_misses() -> None:
    found = peemen.optimise(peemen.layer(), tuple(PEEMEN), first_read=False, strict=False)
    rates = ["0.29947", "0.17091", "0.10442", "0.06130", "0.04069", "0.02426", "0.01394", "0.00884"]
    assert [f"{schedule.per_iteration:.5f}" for schedule in found] == rates


def test_peemen_table_2() -> None:
    times = [schedules.transfer_ms(float(schedules.TABLE[memory][2]), ITERATIONS) for memory in (32, 64, 4096)]
    assert [round(time) for time in times] == [8225, 4066, 323]


@pytest.mark.parametrize("seed", range(3))
def test_peemen_equals_a_simulation_with_sets(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        problem = random_problem(rng)
        tile = {letter: rng.randint(1, problem.size(dim)) for letter, dim in peemen.LETTERS.items()}
        direction = rng.choice(list(tile))
        found = peemen.schedule(problem, tile, direction)
        inner = peemen.LETTERS[direction]
        order = (inner, *rng.sample([dim for dim in DIMS if dim != inner], 5))
        nest = Nest.tiled(problem, {dim: tile[letter] for letter, dim in peemen.LETTERS.items()}, order)
        for operand in OPERANDS:
            moved = simulate(nest, operand, 6, overlap=True, scope=1, first_read=True)
            assert getattr(found, operand) == sum(moved[:2]), (problem, tile, direction, operand)


def test_a_buffer_too_small_for_a_tile() -> None:
    with pytest.raises(PlanError, match="can't hold a tile; the smallest needs 3"):
        peemen.optimise(peemen.layer(), (3,))
    assert peemen.optimise(peemen.layer(), (3,), strict=False)[0].set_words == 3


# -- Cecconi

#: Million words: what the printed model says, what its tile moves, at most what the optimum may move, compulsory.
FLOWNETS = {
    "conv1": ("8.38", "9.10", 4.90, "4.34"),
    "conv2": ("22.30", "23.82", 14.44, "4.92"),
    "conv3": ("20.73", "21.07", 14.00, "3.18"),
    "conv3_1": ("11.80", "12.03", 8.66, "2.16"),
    "conv4": ("11.81", "11.86", 8.00, "2.36"),
    "conv4_1": ("11.41", "11.44", 7.88, "3.15"),
    "conv5": ("5.91", "5.91", 4.04, "2.85"),
    "conv5_1": ("3.25", "3.25", 2.86, "2.56"),
    "conv6": ("5.21", "5.21", 4.98, "4.87"),
    "conv6_1": ("9.68", "9.68", 9.60, "9.54"),
}


def test_flownets_in_32768_words() -> None:
    totals = np.zeros(4)
    for layer in shapes.load("flownets").layers:
        problem = Problem.of(layer)
        _, said, truth = cecconi.printed(problem, 32_768)
        found = cecconi.optimise(problem, 32_768)
        least = sum(problem.words(operand) for operand in OPERANDS)
        expected = FLOWNETS[layer.name]
        assert (f"{said / 1e6:.2f}", f"{truth / 1e6:.2f}", f"{least / 1e6:.2f}") == (*expected[:2], expected[3])
        assert least <= found.words <= expected[2] * 1e6
        # every tile fits with its halo, worked out here
        rows, columns = (
            min((found.sizes[side] - 1) * stride + size, whole)
            for side, stride, size, whole in (
                ("rows", problem.stride[0], problem.Fh, problem.height),
                ("columns", problem.stride[1], problem.Fw, problem.width),
            )
        )
        tile, taps = found.sizes, problem.Fw * problem.Fh
        room = rows * columns * tile["inputs"] + tile["rows"] * tile["columns"] * tile["outputs"]
        assert room + tile["outputs"] * (tile["inputs"] * taps + 1) == found.room <= 32_768
        totals += (said, truth, found.words, least)
    assert [f"{total / 1e6:.1f}" for total in totals[[0, 1, 3]]] == ["110.5", "113.4", "39.9"]
    assert totals[2] <= 79.3e6


def test_the_printed_model_of_groups_and_pools() -> None:
    """AlexNet's conv2 in two groups, and its first pool: a channel at a time, no weights, every row by hand."""
    layers = {layer.name: Problem.of(layer) for layer in shapes.load("alexnet").layers}
    conv2, pool1 = layers["conv2"], layers["pool1"]
    one = Problem(**{**vars(conv2), "groups": 1})
    assert cecconi.printed(conv2, 32_768)[1:] == tuple(2 * words for words in cecconi.printed(one, 32_768)[1:])
    assert cecconi.printed(conv2, 32_768)[1] == 1_124_192
    # the whole map of 55 x 55 at once, and a quarter of it out and in again
    tile, said, moved = cecconi.printed(pool1, 32_768)
    assert (tile["rows"], tile["columns"]) == (55, 55)
    assert said == 96 * (55 * 55 + 2 * 55 * 55 / 4)
    # truth: 27 x 27 outputs of one tile, read and written
    assert moved == 96 * (55 * 55 + 2 * 27 * 27)


def test_the_best_of_equal_tiles_is_moved_in_fewest_transfers() -> None:
    pool = Problem(name="p", X=8, Y=8, C=1, K=1, Fw=2, Fh=2, width=16, height=16, stride=(2, 2), weighted=False)
    found = cecconi.optimise(pool, 1000)
    assert (found.sizes["rows"], found.sizes["columns"], found.calls) == (8, 8, 2)


def test_more_tiles_than_memory_holds() -> None:
    problem = Problem.parse("224x224x512->512 k11")
    with pytest.raises(PlanError, match="tiles are too many to compare"):
        peemen.optimise(problem, (1024,))
    with pytest.raises(PlanError, match="tiles are too many to compare"):
        cecconi.optimise(Problem.parse("3000x3000x1024->1024 k3"), 1 << 20, cecconi.Transfer(jump=1.0))


def literal_words(problem: Problem, sizes: dict[str, int], order: str) -> tuple[int, int]:
    """Words and transfers of a tiled layer, by running its loops over sets of elements."""
    tile = {"X": sizes["columns"], "Y": sizes["rows"], "C": sizes["inputs"], "K": sizes["outputs"]}
    tile |= {"Fw": problem.Fw, "Fh": problem.Fh}
    nest = Nest.tiled(problem, tile, [dim for letter in order for dim in cecconi.LOOPS[letter]])
    words = sum(sum(simulate(nest, operand, 6)[:2]) for operand in OPERANDS)
    bias, held = 0, None
    for ranges, _ in walk(nest, 6) if problem.weighted else ():
        if ranges["C"][0]:
            continue  # its sums have begun, with their bias
        bias += 0 if ranges["K"] == held else ranges["K"][1] - ranges["K"][0]
        held = ranges["K"]
    return words, bias * problem.groups


@pytest.mark.parametrize("seed", range(3))
def test_cecconi_equals_a_simulation(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        problem = random_problem(rng)
        sizes = {"rows": problem.Y, "columns": problem.X, "inputs": problem.C, "outputs": problem.K}
        sizes = {name: rng.randint(1, size) for name, size in sizes.items()}
        order = rng.choice(cecconi.ORDERS)
        found = cecconi.evaluate(problem, sizes, order)
        assert found.words == sum(literal_words(problem, sizes, order)), (problem, sizes, order)
        steps = on_board.tile_steps(problem, found)
        assert problem.groups * (steps.fetched.sum() + steps.written.sum()) == found.words
        assert problem.groups * (steps.calls_in.sum() + steps.calls_out.sum()) == found.calls
        assert problem.groups * (steps.jumps_in.sum() + steps.jumps_out.sum()) == found.jumps
        assert problem.groups * steps.macs.sum() == problem.macs
        transfer = cecconi.Transfer(call=50.0, jump=7.0, word=0.5)
        parts = steps.times(transfer, 0.0)
        expected = 50 * found.calls + 7 * found.jumps + 0.5 * found.words
        assert problem.groups * on_board.in_turn(*parts) == pytest.approx(expected)


def test_a_bias_is_fetched_as_its_sums_begin() -> None:
    """By hand: 4 rows of 4 pixels, 2 -> 2 channels, 1 x 1, row by row and channel by channel; outputs change inside.

    Of each of 4 rows: 2 input channels of 4 words, which stay for both outputs; 4 weights; 2 biases, once, not for each
    input channel; 2 outputs of 4 words, written twice and read once in between.
    """
    sizes = {"rows": 1, "columns": 4, "inputs": 1, "outputs": 1}
    found = cecconi.evaluate(Problem.parse("4x4x2->2 k1"), sizes, "zks")
    assert found.operands == {"input": 4 * 2 * 4, "weights": 4 * 4, "output": 4 * 2 * 4 * 3, "biases": 4 * 2}
    assert found.words == 32 + 16 + 96 + 8
    assert cecconi.optimise(Problem.parse("28x28x96->144 k5 s2 p2"), 600).words == 4_517_520


def runs(problem: Problem, elements: set[tuple[int, ...]], shape: tuple[int, ...]) -> int:
    """Runs of neighbouring addresses that elements of an array of ``shape`` lie in."""
    addresses = sorted(int(np.ravel_multi_index(element, shape)) for element in elements)
    return sum(now != before + 1 for before, now in zip([-2, *addresses], addresses, strict=False))


def test_runs_of_addresses() -> None:
    rng = random.Random(3)
    tried = 0
    while tried < 40:
        problem = random_problem(rng)
        if problem.Fw < problem.stride[1] or problem.Fh < problem.stride[0] or not problem.weighted:
            continue  # windows with gaps between them
        tried += 1
        shape = (problem.C, problem.height, problem.width)
        arrays = {"input": shape, "weights": (problem.K, problem.C, problem.Fh, problem.Fw)}
        arrays["output"] = (problem.K, problem.Y, problem.X)
        sizes = {"rows": problem.Y, "columns": problem.X, "inputs": problem.C, "outputs": problem.K}
        if rng.random() < 0.5:
            sizes = {name: rng.randint(1, size) for name, size in sizes.items()}
        order = rng.choice(cecconi.ORDERS)
        nest = Nest.tiled(
            problem,
            {"X": sizes["columns"], "Y": sizes["rows"], "C": sizes["inputs"], "K": sizes["outputs"]}
            | {"Fw": problem.Fw, "Fh": problem.Fh},
            [dim for letter in order for dim in cecconi.LOOPS[letter]],
        )
        jumps, seen, held = 0, set(), {}
        for ranges, _ in walk(nest, 6):
            for operand, array in arrays.items():
                block = frozenset(elements(problem, operand, ranges))
                key = tuple(ranges[dim] for dim in DIMS if indexes(operand, dim))
                if held.get(operand) != key:
                    again = 2 if operand == "output" and key in seen else 1
                    jumps += again * runs(problem, set(block), array)
                    if operand == "output":
                        seen.add(key)
                held[operand] = key
            if ranges["C"][0] == 0 and held.get("bias") != ranges["K"]:
                jumps += 1
                held["bias"] = ranges["K"]
        found = cecconi.evaluate(problem, sizes, order)
        assert found.jumps == problem.groups * jumps, (problem, sizes, order)


def test_costs_of_calls_and_jumps_change_the_tile() -> None:
    problem = Problem.of(shapes.load("flownets").layers[3])
    plain = cecconi.optimise(problem, 32_768)
    costly = cecconi.optimise(problem, 32_768, cecconi.Transfer(call=100.0, jump=20.0, word=1.0))
    assert costly.jumps < plain.jumps
    assert costly.cost < 100 * plain.calls + 20 * plain.jumps + plain.words
    with pytest.raises(ConfigError, match="must be 0 or more"):
        cecconi.Transfer(call=-1.0)
    with pytest.raises(PlanError, match="can't hold one window"):
        cecconi.optimise(problem, 10)


def test_double_buffering_by_hand() -> None:
    fetch, compute, write = [4, 1, 6], [3, 3, 3], [0, 2, 5]
    # 4, then 3 beside a fetch of 1, then 3 beside 6 coming and 0 leaving, then 3 beside 2 leaving, then 5
    assert on_board.double_buffered(fetch, compute, write) == 4 + 3 + 6 + 3 + 5
    assert on_board.in_turn(fetch, compute, write) == 11 + 9 + 7


def test_every_order_of_flownets_last_layer_is_tried() -> None:
    problem = Problem.parse("8x6x40->48 k3")
    each = [cecconi.optimise(problem, 2_000, orders=(order,)).words for order in cecconi.ORDERS]
    assert cecconi.optimise(problem, 2_000).words == min(each)
    assert len(cecconi.ORDERS) == len(list(permutations("skz")))
