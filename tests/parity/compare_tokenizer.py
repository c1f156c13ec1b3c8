#!/usr/bin/env python3
"""python tests/parity/compare_tokenizer.py TOKENIZER_FOLDER [build/tests/print_ids] [LINES]: gives random lines of many scripts to our tokenizer and to
transformers' T5Tokenizer. Counts the lines whose ids differ, by kind of difference, and prints examples. In versions up to 4, transformers uses SentencePiece for T5; version 5 has its own
tokenizer. Needs transformers, sentencepiece, protobuf."""
import collections
import json
import pathlib
import subprocess
import sys
import unicodedata

import sentencepiece
import transformers

from random_lines import random_lines


def kind_of(text, ours, theirs, pieces):
    size, unknown = pieces.get_piece_size(), pieces.unk_id()

    def spelled(ids):
        return "".join("?" if i == unknown else pieces.id_to_piece(i) if i < size else f"<{i}>" for i in ids)

    def score(ids):
        return sum(pieces.get_score(i) for i in ids if i < size)

    if any(i < size and pieces.is_byte(i) for i in ours + theirs):
        return "byte fallback"
    if any(token in text for token in ("</s>", "<pad>", "<unk>", "<extra_id_", "\uff1c")):
        return "special token"
    if "\u2581" in text:
        return "word start in the text"
    if spelled(ours) == spelled(theirs):
        return "tie" if abs(score(ours) - score(theirs)) < 1e-3 else "another score"
    if any(unicodedata.category(character).startswith("M") for character in text):
        return "accents and other marks"
    if any(unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") for character in text):
        return "control characters"
    return "other"


def main():
    folder, program, count = (sys.argv[1:] + ["build/tests/print_ids", "10000"][len(sys.argv) - 2:])[:3]
    lines = list(random_lines(int(count)))
    printed = subprocess.run([program, folder], input="".join(json.dumps(line) + "\n" for line in lines), text=True, capture_output=True, check=False)
    if printed.returncode != 0:
        sys.exit(printed.stderr)
    ours = [json.loads(ids) for ids in printed.stdout.splitlines()]
    theirs = transformers.T5Tokenizer.from_pretrained(folder)(lines).input_ids
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(pathlib.Path(folder) / "spiece.model"))
    kinds = collections.defaultdict(list)
    for line, mine, other in zip(lines, ours, theirs, strict=True):
        if mine != other:
            kinds[kind_of(line, mine, other, pieces)].append((line, mine, other))
    print(f"transformers {transformers.__version__}, sentencepiece {sentencepiece.__version__}, {len(lines)} lines: {sum(map(len, kinds.values()))} differ")
    for kind, cases in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"{len(cases):6} {kind}")
        for line, mine, other in sorted(cases, key=lambda case: len(case[0]))[:3]:
            print(f"       {ascii(line)}: ours {mine}, theirs {other}")


if __name__ == "__main__":
    main()
