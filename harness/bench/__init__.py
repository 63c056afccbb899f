"""How a workload is timed: schedule, clocks, isolation, parity, memory."""
