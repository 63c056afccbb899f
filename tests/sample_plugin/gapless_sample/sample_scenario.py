"""A short row of a model that gapless knows."""

from __future__ import annotations

from dataclasses import replace

from scenarios.scenario_catalogue import SCENARIOS

CHAT = replace(SCENARIOS["qwen3-0.6b-packed-sft"], name="sample-chat", full_tokens=512)
