"""The compiled module. Its operators are reached through torch.ops.rotcell."""

def instruction_set() -> str:
    """The name of the instruction set in use: "generic", "avx2" or "avx512"."""

def instruction_sets() -> list[str]:
    """The instruction sets that were built and run on this machine."""
