"""Templates (ways to compute a fusion group: ``stream``, ``pyramid``, ``engine``) by name, in order of preference."""

from hwgen.templates.base import Template
from hwgen.templates.engine import EngineTemplate
from hwgen.templates.pyramid import PyramidTemplate
from hwgen.templates.stream import StreamTemplate

TEMPLATES: dict[str, type[Template]] = {
    template.name: template for template in (StreamTemplate, PyramidTemplate, EngineTemplate)
}

__all__ = ["TEMPLATES"]
