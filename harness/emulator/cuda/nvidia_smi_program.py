"""Answers as `nvidia-smi` does, for one GPU whose facts come as the first argument.

Run by its path with nothing but the standard library, since a script may call it often.
"""

from __future__ import annotations

import json
import sys

_UNKNOWN = "[N/A]"
_UNITS = (" MiB", " %", " W", " MHz")


def answer(facts: dict[str, str], arguments: list[str]) -> str:
    """What to print for these arguments: a query as CSV, the list of GPUs, or the table."""
    options: dict[str, str] = {}
    for argument in arguments:
        name, _, value = argument.lstrip("-").partition("=")
        options[name] = value
    query = options.get("query-gpu")
    if query is not None:
        return _csv(facts, query.split(","), options.get("format", "").split(","))
    if any(name.startswith("query-") for name in options):
        return ""  # no process, no event
    if "L" in options or "list-gpus" in options:
        return f"GPU 0: {facts['name']} (UUID: {facts['uuid']})\n"
    used, total = facts["memory.used"], facts["memory.total"]
    return (
        f"NVIDIA-SMI {facts['driver_version']}  Driver Version: {facts['driver_version']}\n"
        f"|   0  {facts['name']}  |  {used.replace(' ', '')} / {total.replace(' ', '')}  |  "
        f"{facts['utilization.gpu'].replace(' ', '')}  Default |\n"
    )


def _csv(facts: dict[str, str], fields: list[str], how: list[str]) -> str:
    how = [word.strip() for word in how]
    values = []
    for field in (name.strip() for name in fields):
        value = facts.get(field.removeprefix("gpu_"), facts.get(field, _UNKNOWN))
        if "nounits" in how:
            for unit in _UNITS:
                value = value.removesuffix(unit)
        values.append(value)
    lines = [] if "noheader" in how else [", ".join(name.strip() for name in fields)]
    return "\n".join([*lines, ", ".join(values)]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(answer(json.loads(sys.argv[1]), sys.argv[2:]))
