"""A tiny Llama with random weights and a tokenizer of its own, for engines under test. Nothing is downloaded.

    python tiny_model.py FOLDER

Two layers, 0.4 million parameters, a vocabulary of 512, up to 8,192 tokens; the same on every machine.
"""

import random
import sys
from pathlib import Path

VOCABULARY = 512
SPECIAL = ("<s>", "</s>", "<pad>")
CHAT = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}assistant:"


def make(folder: Path) -> None:
    """Write model and tokenizer into a folder."""
    import torch  # noqa: PLC0415 - seconds to import, and only in an engine's environment
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415 - the same
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: PLC0415 - the same

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    draw = random.Random(0)  # noqa: S311 - the same words on every machine
    words = ["".join(draw.choices("aeioulnrst", k=draw.randint(2, 7))) for _ in range(400)]
    text = [" ".join(draw.choices(words, k=12)) for _ in range(200)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        text, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=alphabet)
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=SPECIAL[0], eos_token=SPECIAL[1], pad_token=SPECIAL[2],
        model_max_length=8192,
    )  # fmt: skip
    fast.chat_template = CHAT
    fast.save_pretrained(folder)
    if len(fast) != VOCABULARY:
        raise SystemExit(f"the tokenizer has {len(fast)} tokens, wanted {VOCABULARY}")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=8192, bos_token_id=0, eos_token_id=1,
        pad_token_id=2, tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
