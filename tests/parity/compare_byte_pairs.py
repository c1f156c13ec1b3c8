#!/usr/bin/env python3
"""python tests/parity/compare_byte_pairs.py TOKENIZER_FOLDER [build/tests/print_ids] [LINES]: gives random lines to our byte-level BPE and to transformers' fast
Qwen2Tokenizer. Prints the lines whose ids differ, and fails if there are any. Needs transformers 5."""
import json
import random
import subprocess
import sys
import unicodedata

import transformers

from random_lines import random_lines

# The characters that this version of Python knows. utf8proc and tokenizers may know newer characters, but not the same ones, so newer ones are not compared.
KNOWN = [chr(code) for code in range(1, 0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
ENDINGS = ["'s", "'S", "'t", "'RE", "'ve", "'m", "'lL", "'d", "'\u017f", "'x", "''s", "\u2019s"]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\u00a0", "\u3000", "\u0085", "\u2028", "\x0b", "\u200b"]
DIGITS = ["0", "42", "1,000.5", "\u0664\u0665", "\u2167", "\u00bd", "\u00b2", "\u4e09"]


def mixed_lines(count, tokens):
    """Yields lines of parts without spaces between them, because the tokenizer splits words depending on the neighboring characters."""
    rng = random.Random(11)
    parts = [lambda: rng.choice(ENDINGS), lambda: rng.choice(SPACES) * rng.randint(1, 3), lambda: rng.choice(DIGITS), lambda: rng.choice(KNOWN), lambda: rng.choice(tokens),
             lambda: rng.choice(tokens)[:rng.randint(1, 8)], lambda: "".join(rng.choices("abcdeABC", k=rng.randint(1, 6))), lambda: rng.choice("!?.,;:-_/()[]{}<>|\"'`~@#$%^&*+=\\") * rng.randint(1, 3),
             lambda: "".join(rng.choices(KNOWN, k=rng.randint(1, 5))), lambda: rng.choice("aeoAEO\u00e9\u0915\u30ab\u1100\u1161") + chr(rng.randint(0x300, 0x345)) + chr(rng.choice((0x301, 0x323, 0x3099, 0x11A8)))]
    for _ in range(count):
        yield "".join(rng.choice(parts)() for _ in range(rng.randint(1, 14)))


def main():
    folder, program, count = (sys.argv[1:] + ["build/tests/print_ids", "10000"][len(sys.argv) - 2:])[:3]
    theirs = transformers.Qwen2Tokenizer.from_pretrained(folder)
    tokens = list(theirs.get_added_vocab())
    differ, seed_lines = 0, [*random_lines(int(count) // 2), *mixed_lines(int(count) - int(count) // 2, tokens)]
    step = 50000  # number of lines that are compared at a time, to limit memory
    for first in range(0, len(seed_lines), step):
        lines = seed_lines[first:first + step]
        printed = subprocess.run([program, folder], input="".join(json.dumps(line) + "\n" for line in lines), text=True, capture_output=True, check=False)
        if printed.returncode != 0:
            sys.exit(printed.stderr)
        ours = [json.loads(ids) for ids in printed.stdout.splitlines()]
        for line, mine, other in zip(lines, ours, theirs(lines, add_special_tokens=False).input_ids, strict=True):
            if mine != other:
                differ += 1
                if differ <= 20:
                    print(f"{ascii(line)}: ours {mine}, theirs {other}")
    print(f"transformers {transformers.__version__}, Unicode {unicodedata.unidata_version}, {len(seed_lines)} lines: {differ} differ")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
