"""Templates: the ways to make hardware of a fusion group, by name, the preferred one first."""

from hwgen.templates.base import Template
from hwgen.templates.engine import EngineTemplate
from hwgen.templates.pyramid import Pyramid
from hwgen.templates.stream import Stream

TEMPLATES: dict[str, type[Template]] = {template.name: template for template in (Stream, Pyramid, EngineTemplate)}

__all__ = ["TEMPLATES"]
