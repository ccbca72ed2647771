"""A byte-level BPE that takes texts apart into their bytes, in the files that transformers reads."""

import json

import tokenizers


def byte_letters():
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in seen]
    letters = {byte: chr(byte) for byte in seen} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    return [letters[byte] for byte in range(256)]


def save_tokenizer(folder, single):
    """A byte-level BPE of 257 tokens: all bytes but one, one merge, and the end of text."""
    vocabulary = {letter: id for id, letter in enumerate(byte_letters())} | {"<|endoftext|>": 256}
    folder.mkdir(parents=True, exist_ok=True)
    if single:
        library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
        library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = tokenizers.decoders.ByteLevel()
        library.add_special_tokens(["<|endoftext|>"])
        library.save(str(folder / "tokenizer.json"))
    else:
        (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        (folder / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
