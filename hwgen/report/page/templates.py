"""Choice of the writer of the report page's sections for a fusion group, by the group's template."""

from __future__ import annotations

from collections.abc import Mapping

from hwgen.options import ENGINE
from hwgen.plan.plan import Plan
from hwgen.report.page.engine import EngineSections
from hwgen.report.page.sections import Sections
from hwgen.templates.base import Group

_STREAMS = Sections()
_BY_TEMPLATE: Mapping[str, Sections] = {ENGINE: EngineSections()}


def of_group(group: Group) -> Sections:
    """Return the `Sections` object for a fusion group's template, which fills the report page's sections."""
    return _BY_TEMPLATE.get(group.template.name, _STREAMS)


def of_plan(plan: Plan) -> Sections:
    """Return the `Sections` object for a plan's only fusion group; for several groups, the default one for streams."""
    return of_group(plan.groups[0]) if len(plan.groups) == 1 else _STREAMS
