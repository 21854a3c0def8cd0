"""Templates: the ways to make hardware of a fusion group, by name, the one that is wanted most first."""

from hwgen.templates.base import Template
from hwgen.templates.pyramid import Pyramid
from hwgen.templates.stream import Stream
from hwgen.templates.tile import Tile

TEMPLATES: dict[str, type[Template]] = {template.name: template for template in (Stream, Pyramid, Tile)}

__all__ = ["TEMPLATES"]
