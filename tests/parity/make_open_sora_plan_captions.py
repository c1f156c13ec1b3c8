#!/usr/bin/env python3
"""python tests/parity/make_open_sora_plan_captions.py CHECKOUT: writes data/open_sora_plan/captions.json: the results of the authors' caption cleaning. The
inputs are prompts that end in full stops and white space, between the words that the authors' scripts add. Needs beautifulsoup4, ftfy, and what open_sora_plan.py needs."""
import json
import re

from open_sora_plan import CODE, OpenSoraPipeline  # must come first, because make_pipeline imports diffusers
from make_pipeline import DATA

WORDS = re.search(r'positive_prompt = """(.*?)"""', (CODE / "opensora/sample/sample_t2v_ddp.py").read_text(), re.DOTALL).group(1)
ENDS = ["", " ", ".", ". ", ".\n", " .", " . ", "..", ".. ", "...", "... ", ". .", ". . ", ". . .", " ...", ".  ", "!", "? ", ","]
PROMPTS = [text + end for text in ("A red circle", "first. Second") for end in ENDS] + ["", " ", ".", ". ", "..", " . ", "a . b", "a .. b... c", "a . . b", "a . . . b", "  A  Star\t "]


def main():
    pipeline = OpenSoraPipeline.__new__(OpenSoraPipeline)
    cases = [[prompt, pipeline._text_preprocessing(WORDS.format(prompt), clean_caption=True)[0]] for prompt in PROMPTS]
    (DATA / "open_sora_plan" / "captions.json").write_text(json.dumps(cases).replace("], [", "],\n[") + "\n")


if __name__ == "__main__":
    main()
