"""Tokens a second of transformers' GPT-2 with its cache, on the CPU: the row beside `cargo xtask bench serving`.

    python decode_speed.py --texts 1,8 --prompt 32 --tokens 64

Prints one line of JSON for each number of texts. Random weights, greedy, f32.
"""

import argparse
import json
import time

import torch
import transformers


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--texts", default="1,8")
    for name, default in [
        ("prompt", 32), ("tokens", 64), ("width", 768), ("layers", 12), ("heads", 12), ("positions", 1024),
        ("vocabulary", 50257), ("threads", torch.get_num_threads()),
    ]:
        ask.add_argument("--" + name, type=int, default=default)
    args = ask.parse_args()
    torch.set_num_threads(args.threads)
    config = transformers.GPT2Config(
        n_layer=args.layers, n_embd=args.width, n_head=args.heads, n_positions=args.positions,
        vocab_size=args.vocabulary, bos_token_id=None, eos_token_id=None,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    for texts in map(int, args.texts.split(",")):
        prompt = torch.randint(args.vocabulary, (texts, args.prompt))
        options = {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
        began = time.perf_counter()
        model.generate(prompt, max_new_tokens=1, **options)
        first = time.perf_counter() - began
        began = time.perf_counter()
        model.generate(prompt, max_new_tokens=args.tokens, min_new_tokens=args.tokens, **options)
        seconds = time.perf_counter() - began - first
        print(json.dumps({
            "bench": "decode", "program": f"transformers {transformers.__version__}", "threads": args.threads,
            "texts": texts, "prompt": args.prompt, "tokens": args.tokens, "seconds_to_first_token": first,
            "tokens_per_second": texts * (args.tokens - 1) / seconds,
        }))


if __name__ == "__main__":
    main()
