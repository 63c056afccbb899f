"""TRL's SFTTrainer with packed data and a LoRA adapter, all of it local."""

import sys

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config
from trl import SFTConfig, SFTTrainer

words = [f"w{i}" for i in range(90)]
vocabulary = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *words])}
bare = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
bare.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=bare, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
)
config = Qwen3Config(
    vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, head_dim=8,
)  # fmt: skip
model = AutoModelForCausalLM.from_config(
    config, attn_implementation=sys.argv[1], dtype=torch.bfloat16
)
texts = [" ".join(words[j % 90] for j in range(i, i + 8 + i % 13)) for i in range(64)]
arguments = SFTConfig(
    output_dir="out", per_device_train_batch_size=2, max_steps=3, logging_steps=100,
    save_strategy="no", report_to=[], bf16=True, packing=True, max_length=32, disable_tqdm=True,
)  # fmt: skip
trainer = SFTTrainer(
    model=model, args=arguments, train_dataset=Dataset.from_dict({"text": texts}),
    processing_class=tokenizer, peft_config=LoraConfig(r=4, target_modules="all-linear"),
)  # fmt: skip
trainer.train()
