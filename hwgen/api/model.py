"""A network that designs are planned for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwgen.api.arrays import Inputs
from hwgen.api.design import AcceleratorDesign, Design
from hwgen.api.engine import EngineRun, ProgramDesign
from hwgen.api.golden import GoldenModel
from hwgen.api.retrained import Retrained
from hwgen.arguments import checked
from hwgen.boards import Board
from hwgen.boards import load as load_board
from hwgen.errors import InputError, PlanError
from hwgen.options import ENGINE, documented
from hwgen.progress import Listener, followed

if TYPE_CHECKING:
    from hwgen.api.result import Result
    from hwgen.plan import Plan

__all__ = ["DESIGNS", "Model", "design_of"]

DESIGNS: dict[str, type[Design]] = {ENGINE: ProgramDesign}
"""Classes of designs by the template of a plan's only group; all other plans are an `AcceleratorDesign`."""


def design_of(model: GoldenModel, plan: Plan) -> Design:
    """Return the design of a model and a plan of it."""
    template = plan.groups[0].template.name if len(plan.groups) == 1 else ""
    return DESIGNS.get(template, AcceleratorDesign)(model, plan)


@dataclass(frozen=True, repr=False)
class Model(GoldenModel):
    """A network, resolved to integers."""

    @checked
    @documented
    def plan(
        self,
        board: str | Board,
        *,
        plan: str | Path | None = None,
        progress: bool | Listener = False,
        jobs: int | None = None,
        cluster: str | None = None,
        **options: Any,
    ) -> Design:
        """Plan the accelerator for a board, or take a plan that was written before.

        Parameters
        ----------
        board : str or Board
            Name (``zedboard``), path of a board's ``.toml`` file, or the board itself.
        plan : str or Path, optional
            A ``plan.json`` (its path) to follow instead of planning.
        progress : bool or callable
            Show on stderr how far it is, or tell a function (`hwgen.progress`).
        jobs : int, optional
            Steps of a long search side by side, which that of an engine has; as many as there are processors if not
            given.
        cluster : str, optional
            Where they run (`hwgen.work.pool`): on this machine if not given. It is asked only if there are such steps.
        options
            What is asked of the plan, by the names of `hwgen.options.Options` (the parameters of `hwgen.plan.Request`).

        Raises
        ------
        BoardError
            If the board is unknown.
        InputError
            If an option is unknown, or stands beside a given plan; if ``jobs`` is no positive integer, ``cluster`` no
            address, or both are given.
        PlanError
            If an option makes no sense, nothing fits, or the given plan does not fit the network or exceeds the board.
        """
        from hwgen import plan as planner
        from hwgen import work
        from hwgen.plan import kept

        if not isinstance(board, Board):
            board = load_board(str(board))
        with followed(progress), work.beside(cluster, jobs):
            if plan is None:
                return design_of(self, kept.make(self.network, board, **options))
        planner.Request.check_names(options)
        if given := [name for name, value in options.items() if value is not None and value is not False]:
            raise InputError(f"a given plan is not planned again: give {' and '.join(given)} or plan, not both")
        return design_of(self, planner.read(_plan_text(plan), self.network, board))

    @checked
    def retrained(self, design: str | Path, *, board: str | Board | None = None) -> Retrained:
        """This model in a design that was built of another one of its shape, with weights that are loaded.

        Parameters
        ----------
        design : str or Path
            The folder that ``Design.build`` wrote of a plan with ``weights="runtime"``.
        board : str or Board, optional
            As for ``plan``; the one that the design's plan names if not given.

        Returns
        -------
        Retrained
            Its ``weights`` are the file to load, and ``simulate`` loads them into the design's own Verilog.

        Raises
        ------
        InputError
            If there is no such design in the folder, or its hardware is another than the model's; names the layer and
            what differs.
        PlanError
            If the design's plan is of other layers.
        BoardError
            If the board is unknown.
        """
        from hwgen import plan as planner
        from hwgen.emit import weights
        from hwgen.network.loaded import for_hardware
        from hwgen.plan import document

        known = weights.read_design(design)
        text = _plan_text(Path(design) / "plan.json")
        if not isinstance(board, Board):
            board = board or document.board_name(text)
            if board is None:
                raise InputError(
                    f"{Path(design) / 'plan.json'} is not the one that hwgen wrote: build the design again"
                )
            board = load_board(str(board))
        network = for_hardware(self.network, known.weight_bits)
        found = Retrained(self, planner.read(text, network, board), folder=known)
        known.refuse(found.config, self.name)
        return found

    @checked
    def compile(
        self,
        engine: str | Path,
        *,
        plan: str | Path | None = None,
        batch: int | None = None,
        jobs: int | None = None,
        cluster: str | None = None,
    ) -> Design:
        """Make a program for an engine that exists.

        Parameters
        ----------
        engine : str or Path
            The folder that ``Design.build`` wrote of a plan on an engine.
        plan : str or Path, optional
            A ``plan.json`` (its path) for such an engine, to follow instead of planning.
        batch : int, optional
            Frames that a run of the program computes; one if not given, or those of ``plan``.
        jobs, cluster
            As of ``plan``.

        Returns
        -------
        Design
            On that engine; ``program`` is the program, and ``simulate`` runs it on the engine's own Verilog.

        Raises
        ------
        InputError
            If there is no engine in the folder, or it was changed.
        PlanError
            If the engine can't compute a layer or has no room for it; if the plan is of another engine, or ``batch``
            stands beside it or is out of range.
        """
        from hwgen import work
        from hwgen.emit import engine as folder
        from hwgen.plan.engine import on_engine

        circuit = folder.read(engine)
        text = None if plan is None else _plan_text(plan)
        with work.beside(cluster, jobs):
            plan_of = on_engine(self.network, circuit.board, circuit.engine, circuit.memory, text, batch)
        return ProgramDesign(self, plan_of, circuit)

    @checked
    def run(
        self,
        engine: str | Path,
        program: str | Path,
        x: Inputs,
        *,
        waves: str | Path | None = None,
        progress: bool | Listener = False,
        jobs: int | None = None,
        memory_latency: int | None = None,
        bandwidth: float | None = None,
        cluster: str | None = None,
    ) -> Result:
        """Run a program of this model, from its file, on an engine that exists, as ``Design.simulate`` does.

        Raises
        ------
        InputError
            If the file is no program, cut off, changed, of another engine, or of a model with other maps.
        """
        from hwgen.emit import engine as folder
        from hwgen.program.file import Program
        from hwgen.simulate.frames import check_program
        from hwgen.templates.engine import EngineTemplate

        circuit = folder.read(engine)
        found = Program.read(Path(program), circuit.engine)
        check_program(found, self.network)
        template = EngineTemplate(engine=circuit.engine, memory=circuit.memory)
        timing = template.timing(circuit.board, memory_latency, bandwidth)
        run = EngineRun(circuit, found, timing, waves=waves, progress=progress, jobs=jobs, cluster=cluster)
        return run.compared(self, x)


def _plan_text(plan: str | Path) -> str:
    """Return the contents of a ``plan.json``."""
    """The contents of a ``plan.json``."""
    try:
        return Path(plan).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # among the latter names with a zero in them, and other encodings
        reason = getattr(error, "strerror", None) or "not a text file"
        raise PlanError(f"plan {plan} can't be read: {reason}") from error
