#!/usr/bin/env python3
"""python tests/parity/make_byte_pairs.py: trains a small byte-level BPE vocabulary, and writes it to data/byte_pairs with the ids that transformers'
Qwen2Tokenizer makes of difficult strings (golden.json). Needs tokenizers and transformers 5."""
import json
import pathlib
import shutil
import tempfile

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer

from compare_byte_pairs import mixed_lines
from random_lines import random_lines

DATA = pathlib.Path(__file__).parent / "data" / "byte_pairs"
LISTED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>", "<tool_call>"]
STRINGS = [
    "", "a", " ", "   ", " a", "a ", "  a  ", "\n", "a\n", "\n\n a", "a \n b", "a\t\r\n\n  b", "it's IT'S we'll you'LL they're I'VE I'm he'd 'tis don''t", "'\u017f a'\u017fb", "x'y 's",
    "A red fox walking through snow", "Hello, WORLD!  2026", "1234567 3.14 \u00bd \u2167 \u0664\u0665", "caf\u00e9 cafe\u0301 na\u00efve", "\u4e2d\u6587 \u30ab\u3099 \u1100\u1161\u11a8 \u1100\u1161\u11a7", "\U0001f642a!\n",
    "..!?\n\n- a", "(a) [b] {c} <d>", "$5.00 100%", "under_score camelCase", "\u00a0a\u3000b\u2028c\u0085d", "a\u200bb \u200d\ufeff", "<|endoftext|>", "a<|im_start|>b", " <|im_end|> \n",
    "<tool_call>x</tool_call>", "<d>[English] Hello there.</d>", "a <d> b </d> c", "<|cutoff|><|cutoff|>", "<|im_start", "<d", "</d>>", "<|IM_END|>", "<|im_end|", "a\x00b", "\x07\x1f\x7f", "red" * 60, "a" * 300,
    "\u0e81\u0ec8\u0eba", "\u0c4d\u0c3c a", "q\u0301\u1abf\u0323e\u0301", "\U00011935\U00011930",  # accents and letters that are newer than Unicode 9
    "  wide  ", "a  wide b", "a wide\n\nb", "cafe\u0301-token", "caf\u00e9-token",
]


def train(folder):
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    corpus = [line for line in random_lines(3000)] + ["A red fox walks through the snow, and the camera's view is cinematic.\n\n", "Hello there! I'm here; we'll see... 2026"] * 200
    model.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=520, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model.model.save(str(folder))
    lines = (folder / "merges.txt").read_text().splitlines()
    (folder / "merges.txt").write_text("\n".join(line for line in lines if not line.startswith("#version")) + "\n")


def config(size, **more):
    listed = {str(size + i): dict(content=token, lstrip=False, normalized=False, rstrip=False, single_word=False, special=i < 4) for i, token in enumerate(LISTED)}
    return dict(added_tokens_decoder=listed, bos_token=None, eos_token="<|im_end|>", pad_token="<|endoftext|>", unk_token=None, tokenizer_class="Qwen2Tokenizer", **more)


def main():
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    train(DATA)
    size = len(json.loads((DATA / "vocab.json").read_text()))
    extra = LISTED[1:4] + ["<d>", "</d>", "<|cutoff|>"]
    flags = dict(lstrip=True, rstrip=True, normalized=False, single_word=False, special=True)
    stripped = config(size)
    stripped["added_tokens_decoder"] |= {str(size + 5): dict(flags, content="wide"), str(size + 6): dict(flags, content="cafe\u0301-token", lstrip=False, rstrip=False, normalized=True, special=False)}
    folders = {"ThreeKinds": {"tokenizer_config.json": config(size, additional_special_tokens=extra)}, "WithoutConfig": {}, "StrippedAndNormalized": {"tokenizer_config.json": stripped}}
    strings = STRINGS + [line for line in random_lines(20)] + [line for line in mixed_lines(90, LISTED + extra)]
    golden = []
    for name, files in folders.items():
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as saved:
            for file in ("vocab.json", "merges.txt"):
                shutil.copy(DATA / file, folder)
            for file, content in files.items():
                (pathlib.Path(folder) / file).write_text(json.dumps(content))
            tokenizer = Qwen2Tokenizer.from_pretrained(folder)
            ids = tokenizer(strings, add_special_tokens=False).input_ids
            golden.append({"name": name, "files": {file: json.dumps(content) for file, content in files.items()}, "vocabulary_size": len(tokenizer), "ids": ids})
            if name == "ThreeKinds":  # saves the files of transformers 5, which have only tokenizer.json
                tokenizer.save_pretrained(saved)
                kept = {file: (pathlib.Path(saved) / file).read_text() for file in ("tokenizer.json", "tokenizer_config.json")}
                kept["tokenizer.json"] = json.dumps(json.loads(kept["tokenizer.json"]))
                again = Qwen2Tokenizer.from_pretrained(saved)(strings, add_special_tokens=False).input_ids
                assert again == ids
                golden.append({"name": "TokenizerJson", "files": kept, "vocabulary_size": len(tokenizer), "ids": ids})
    (DATA / "golden.json").write_text(json.dumps({"strings": strings, "folders": golden}, separators=(",", ":")))


if __name__ == "__main__":
    main()
