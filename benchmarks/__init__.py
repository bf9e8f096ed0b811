"""How fast fsdp-migrate is beside its neighbours; see docs/performance.md."""
