#!/usr/bin/env python3
"""python tests/parity/make_tokenizer.py: writes data/tokenizer/spiece.model and data/tokenizer_golden.json, the ids that T5Tokenizer makes of difficult
strings with this model. Needs sentencepiece, protobuf and transformers 4.57, the last version whose T5Tokenizer uses SentencePiece."""
import json
import pathlib
import random
import shutil
import tempfile

import sentencepiece
from transformers import T5Tokenizer

DATA = pathlib.Path(__file__).parent / "data"
SENTINELS = [f"<extra_id_{i}>" for i in range(100)]
NAMED = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def train_spiece(folder):
    """Trains a SentencePiece model with T5's settings: unigram, normalization nmt_nfkc, ids pad 0, eos 1 and unknown 2, no bos."""
    rng = random.Random(3)
    words = {
        "a": "red green blue yellow white black grey small large shiny wooden glass old bright dark".split(),
        "b": "circle square triangle star cat dog panda house river mountain robot car bird fish guitar".split(),
        "c": "moving running flying rotating jumping walking playing swimming floating drifting".split(),
        "d": "to the right,to the left,up,down,slowly,quickly,in the rain,at sunset,over the sea,in a bamboo forest".split(","),
    }
    lines = []
    for _ in range(1500):
        pick = {key: rng.choice(values) for key, values in words.items()}
        lines.append(f"A {pick['a']} {pick['b']} is {pick['c']} {pick['d']}. The camera's view, in {rng.randrange(1, 200)}k detail - cinematic!")
        lines.append(f"{pick['b']}s -- {pick['c']}... wow!!! (a {pick['a']} one) caf\u00e9, na\u00efve? haha hahaha")
    folder.mkdir(parents=True, exist_ok=True)
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(lines))
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(folder / "spiece"), model_type="unigram", vocab_size=420, hard_vocab_limit=False, character_coverage=1.0,
        normalization_rule_name="nmt_nfkc", required_chars="".join(map(chr, range(33, 127))), pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
        user_defined_symbols="", minloglevel=2, num_threads=1)
    corpus.unlink()
    (folder / "spiece.vocab").unlink()


def strings():
    plain = [
        "", "a", "A", "red", "a red circle moving to the right on a blue background", "A panda, dressed in a small, red jacket, plays a guitar in a bamboo forest.",
        "The camera's view is cinematic, in 4k detail - wow!", "CamelCaseWord", "ALL CAPS", "under_score", "semi;colon:colon", "tabs\tand\nnewlines", "e-mail@example.com",
        "https://example.com/a?b=c&d=e#f", "C:\\path\\file", "100% of $5.00", "1234567890", "3.14159", "[brackets] {braces} (parens) <angles>", "\"double\" 'single' `back`",
        "a" * 40, "-" * 31, "." * 17, "!" * 9, "hahahahahahaha", "......", "---------", "aaaa bbbb", "a.b.c.d.e", "cat" * 12, "wow!!!!!!!! wow", "ssssnnnn....----nnnn",
    ]
    spaces = [
        " ", "   ", " a", "a ", "  a  ", "a  b", "a   b    c", "\ta", "a\t\tb", "\n", "\r\n", "a\r\nb", "\n\na\n\n", "a\u00a0b", "a\u2003b", "a\u3000b", "a\u200bb", "a\u2028b",
        "a\u1680b", "a\u0085b", "\ufeffa", "a\ufeffb", "a\u00adb", "a\x0bb", "a\x0cb", "a\x1fb", "a\x00b", "\x07bell", "a\x7fb", "\u2581", "\u2581a", "a\u2581b", "\u2581\u2581a \u2581", "a \u2581 b",
    ]
    unknown = [
        "\u65e5\u672c\u8a9e", "\u65e5 \u672c \u8a9e", "a\u65e5b", "\u65e5\u672ca\u8a9e", "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "\u0645\u0631\u062d\u0628\u0627", "\u05e9\u05dc\u05d5\u05dd", "\u0939\u093f\u0928\u094d\u0926\u0940", "\ud55c\uad6d\uc5b4",
        "\U0001f600", "\U0001f600\U0001f601 \U0001f602", "a\U0001f600b", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3", "\u2764\ufe0f", "\u00a9\ufe0f \u2122\ufe0f", "\U0001f44b\U0001f3fd",
        "\U000e0041", "\U0010fffd", "\ue000", "\u0300", "\u0378", "\ufffd", "\uffff",
    ]
    normalised = [
        "\uff21\uff22\uff23 \uff11\uff12\uff13", "\uff52\uff45\uff44\u3000\uff43\uff49\uff52\uff43\uff4c\uff45", "\uff1cpad\uff1e", "\uff1c/s\uff1e a", "\uff1cunk\uff1e", "\uff1cextra_id_0\uff1e", "\ufb01sh \ufb03", "x\u00b2 \u00bd \u2460 \u2122", "\u212b \u2126", "caf\u00e9 na\u00efve",
        "cafe\u0301 nai\u0308ve", "a\u0323\u0302", "a\u0302\u0323", "\ufb01\u0301", "\u2460\u0301", "\u00aa\u0301\u0302", "\u3000\u033dred", "\u212b\u0301", "\uff76\uff9e\uff8a\uff9f", "\u30ab\u3099", "\u1100\u1161\u11a8", "\u1100\u1161", "\u0958\u0301", "\u0915\u093c", "\u0600a\u0301", "\u0600\u00bd",
        "\u2026 \u2013 \u2014 \u2018quoted\u2019 \u201cquoted\u201d", "\u00ab\u00bb \u2039\u203a", "\u33a1 \u3392", "\ufdfa", "\u0149", "\u01c4", "\u1e9b\u0323", "\u2474", "\u3231", "e\u0301\u0301\u0301", "\u200d\u200c", "a\u200db", "\u0e33", "\u0675",
    ]
    special = [
        "</s>", "<pad>", "<unk>", "<extra_id_0>", "<extra_id_1>", "<extra_id_10>", "<extra_id_99>", "<extra_id_100>", "<extra_id_>", "<extra_id_00>", "a</s>", "</s>a", "a </s> b", "a</s>b", "a<unk>b<pad>c</s>",
        "</s></s></s>", "<pad> <pad>", "<extra_id_0><extra_id_1>", "red <extra_id_0> circle <extra_id_1>", "<extra_id_99>\u3000\u033dred", "red\u2003\u0301<extra_id_5> \u0301blue", "<EXTRA_ID_0>", "< extra_id_0>", "</S>", "<s>", "</s", "/s>",
        "<<pad>>", "</s>\u0301a", "<my> token", "\uff1cmy\uff1e token", "\uff1cextra_id_7\uff1e <extra_id_7>",
    ]
    words = [" ".join(["red panda"] * 200), "x" * 300, "\u65e5" * 50, "a " * 100 + "</s> tail"]
    rng = random.Random(4)
    alphabet = list("abcdeinrst .-!") + ["\u0301", "\u65e5", "\uff21", "\u3000", "</s>", "<extra_id_3>", "\u2581", "\U0001f600", "\u00bd", "\ufb01"]
    mixed = ["".join(rng.choice(alphabet) for _ in range(rng.randrange(2, 25))) for _ in range(30)]
    return plain + spaces + unknown + normalised + special + words + mixed


def folders():
    """Returns {name: JSON files beside spiece.model}: as several versions of transformers wrote them, and as users edit them."""
    def token(content, **flags):
        return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True, **flags}

    first = 189  # number of the model's pieces
    listed = {str(i): token(content) for i, content in enumerate(["<pad>", "</s>", "<unk>"])}
    listed |= {str(first + i): token(f"<extra_id_{99 - i}>", lstrip=True, rstrip=True) for i in range(100)}
    config = "tokenizer_config.json"
    return {
        "bare": {},
        "plain": {config: {**NAMED, "extra_ids": 0, "additional_special_tokens": []}, "special_tokens_map.json": NAMED},
        "published": {config: {**NAMED, "extra_ids": 100, "additional_special_tokens": SENTINELS, "added_tokens_decoder": listed, "legacy": True, "model_max_length": 226},
                      "special_tokens_map.json": {"additional_special_tokens": SENTINELS, **{key: token(value) for key, value in NAMED.items()}},
                      "added_tokens.json": {f"<extra_id_{i}>": first + 99 - i for i in range(100)}},
        "older": {config: {**NAMED, "extra_ids": 100, "additional_special_tokens": SENTINELS}, "special_tokens_map.json": {**NAMED, "additional_special_tokens": SENTINELS}},
        "added_tokens": {config: {**NAMED, "extra_ids": 100}, "added_tokens.json": {f"<extra_id_{i}>": first + 99 - i for i in range(100)}},
        "five_sentinels": {config: {**NAMED, "extra_ids": 5}},
        "own_token": {config: {**NAMED, "extra_ids": 3, "additional_special_tokens": ["<my>", *SENTINELS[:3]]}},
        "own_tokens_everywhere": {config: {**NAMED, "extra_ids": 3, "bos_token": "<s>", "additional_special_tokens": ["<my>", *SENTINELS[:3]], "added_tokens_decoder": {str(first + 3): token("my", special=False)}}},
        "other_eos_and_pad": {config: {**NAMED, "extra_ids": 0, "eos_token": "<eos>", "pad_token": "</s>"}},
        "map_only": {"special_tokens_map.json": {"pad_token": "</s>", "additional_special_tokens": ["<my>", *SENTINELS]}},
    }


def tokenizer_golden(model_file):
    golden = {"folders": []}
    texts = strings()
    for name, files in folders().items():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(model_file, folder)
            for file, content in files.items():
                (pathlib.Path(folder) / file).write_text(json.dumps(content))
            tokenizer = T5Tokenizer.from_pretrained(folder)
        # The other kinds of folders differ only in special tokens, so texts without special tokens need no test there.
        chosen = texts if name in ("plain", "published") else [text for text in texts if len(text) < 60 and ("<" in text or "\uff1c" in text or text in ("", "a red circle"))]
        ids = tokenizer(chosen).input_ids
        entry = {"name": name, "files": files, "vocabulary_size": len(tokenizer), "cases": [list(case) for case in zip(chosen, ids)], "padded": []}
        for text in ("", "a red circle", "a red circle moving to the right", "red <extra_id_0> circle </s>"):
            for length in (2, 5, 16):  # transformers 4 cannot truncate to length 1
                padded = tokenizer(text, padding="max_length", max_length=length, truncation=True, add_special_tokens=True).input_ids
                entry["padded"].append([text, length, padded])
        golden["folders"].append(entry)
    return golden


def main():
    model_file = DATA / "tokenizer" / "spiece.model"
    if not model_file.exists():  # keep a trained model, because other golden files depend on it
        train_spiece(model_file.parent)
    (DATA / "tokenizer_golden.json").write_text(json.dumps(tokenizer_golden(model_file), separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")


if __name__ == "__main__":
    main()
