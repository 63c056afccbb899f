"""The audit of a step on the emulated device."""
