"""A Hugging Face Trainer on a tiny model; the first argument says what is special about it."""

import sys

import torch
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    DataCollatorWithFlattening,
    Qwen3Config,
    Trainer,
    TrainingArguments,
)

how = sys.argv[1]
torch.manual_seed(0)
config = Qwen3Config(
    vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, head_dim=8, use_cache=False,
)  # fmt: skip
packed = how in ("packed", "packed-metadata")
model = AutoModelForCausalLM.from_config(
    config,
    dtype=torch.bfloat16,
    attn_implementation="flash_attention_2" if packed else "sdpa",
)
rows = [list(range(1, 13 + i % 5)) for i in range(32)]
if not packed:
    rows = [row[:12] for row in rows]
data = Dataset.from_dict({"input_ids": rows, "labels": rows})
if packed:
    collator = DataCollatorWithFlattening(return_flash_attn_kwargs=how == "packed-metadata")
else:
    collator = lambda items: {k: torch.tensor([i[k] for i in items]) for k in items[0]}  # noqa: E731
arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=4, max_steps=3, logging_steps=100,
    save_strategy="steps" if how == "save" else "no", save_steps=2, report_to=[], bf16=True,
    dataloader_num_workers=2 if how == "workers" else 0, disable_tqdm=True,
)  # fmt: skip
trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collator)
assert arguments.device.type == "cuda"
trainer.train()
print("trained")
