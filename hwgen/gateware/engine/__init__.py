"""The programmable engine: one circuit that runs any network from off-chip memory, job by job (docs/engine.md)."""
