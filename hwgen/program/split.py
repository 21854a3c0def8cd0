"""Division of a layer's pass among the cores of an engine (Yang's multicore partitioning, section 3.3).

Yang unrolls a loop of a blocking over cores. If output channels are divided (his K), all cores get the same input
and weights of their own. If pixels are divided (his X and Y), all cores get the same weights and inputs of their
own, with halos. Frames of a batch are divided like pixels, without halos. Both kinds mix: the cores form teams, the
teams divide rows or frames, and the members of a team divide output channels.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.gateware.engine.config import EngineConfig


@dataclass(frozen=True, kw_only=True)
class Split:
    """Division of a layer among cores: teams of cores share rows or frames, members of a team output channels.

    Parameters
    ----------
    teams : int
        Number of teams. Each computes other rows or another frame, from the same weights.
    members : int
        Number of cores of a team, a power of two. Each computes other output channels. They have the same input, unless
        the pass is channelwise.
    total_rows : int
        Number of computed rows of the whole pass, if teams divide rows; 0 if they divide frames.
    """

    teams: int = 1
    members: int = 1
    total_rows: int = 0

    @property
    def by_rows(self) -> bool:
        """Whether the teams of cores divide the rows of a frame; otherwise each team computes another frame."""
        return self.total_rows > 0

    @property
    def frames(self) -> int:
        """Number of frames that the cores compute at the same time: one per team, or 1 if teams divide rows."""
        return 1 if self.by_rows else self.teams

    @property
    def cores(self) -> int:
        """Number of cores that compute the layer: teams times cores per team."""
        return self.teams * self.members

    @property
    def member_bits(self) -> int:
        """Base-2 logarithm of the number of cores of a team, as the fields of jobs encode it."""
        return self.members.bit_length() - 1

    @property
    def text(self) -> str:
        """Short description for the plan's table, such as "4 frames x 4 maps"; empty with one core."""
        teams = [f"{self.teams} {'rows' if self.by_rows else 'frames'}"] if self.teams > 1 else []
        return " x ".join([*teams, *([f"{self.members} maps"] if self.members > 1 else [])])


def frames_per_round(frames: int, at_once: int) -> float:
    """Return the mean number of frames per round, if a run's frames are computed ``at_once`` per round.

    The last round of three frames, two at once, has one frame.
    """
    return frames / -(-frames // at_once)


#: Division of a layer that a single core computes.
UNDIVIDED = Split()


def splits(engine: EngineConfig, folds: int, rows: int, edge: int, frames: int, *, by_rows: bool) -> list[Split]:
    """Return a list of each candidate `Split`: division of a pass (run of the array) among an engine's cores.

    Parameters
    ----------
    folds : int
        Number of output folds of the pass on one core.
    rows : int
        Number of computed rows of the pass.
    edge : int
        Number of computed rows per written one.
    frames : int
        Number of frames of a run.
    by_rows : bool
        Whether teams can divide the rows of the pass.
    """
    found, members = [], 1
    while members <= engine.cores and members < 2 * folds:
        max_teams = engine.cores // members
        teams = min(max_teams, frames)
        found.append(Split(teams=teams, members=members))
        teams = min(max_teams, -(-rows // edge))
        if by_rows and teams > 1:
            found.append(Split(teams=teams, members=members, total_rows=rows))
        members *= 2
    return found
