"""Components for weights that are loaded at run time: loader, distribution chain and memories."""
