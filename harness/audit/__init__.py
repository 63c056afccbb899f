"""From any source (emulator, GPU, trace file) to one report of what made the host wait."""
