#!/usr/bin/env python3
"""python tests/parity/make_prompt_cleaning.py: writes data/prompt_cleaning.json: the results of WanPipeline's prompt_clean for difficult prompts, and of NFC for
random texts. Needs diffusers 0.42 and ftfy 6.3, whose repair of wrong encodings is turned off (see models/text/clean_prompt.h)."""
import json
import pathlib
import random
import unicodedata

import ftfy
from diffusers.pipelines.wan import pipeline_wan

DATA = pathlib.Path(__file__).parent / "data"
PROMPTS = [
    "", " ", "a red circle", "  a   red\tcircle \n on\r\nblue ", "a\u00a0b\u2003c\u3000d\u202fe", "a\u200bb", "\ufeffa cat", "a\x00b\x07c\x7fd\x1be",
    "&amp;", "&amp;amp;", "&amp;amp;amp;", "&lt;b&gt;bold&lt;/b&gt;", "<b>&amp;amp;amp;</b>", "a &amp b", "this&not that", "this&notit; that", "&copy2026", "&copy;2026", "&NotEqualTilde;",
    "&ThickSpace;x", "&#65;&#x42;&#X43;&#68", "&#0;&#128;&#x9f;&#13;&#1;&#xD800;&#x110000;&#99999999999999;", "&#xfdd0;&#x1ffff;x", "&#;&#x;&;& &a;&zz;", "&" * 9, "&amp" * 4, "&quot;hi&quot;", "&rdquo;quoted&ldquo;",
    "\u201cquoted\u201d \u2018single\u2019 \u201elow\u201f \u201aok \u02bcn", "\u00abguillemets\u00bb", "\ufb01sh \ufb03ce \ufb05 \u0132 \u01c4 \u01c6 \u0149", "\u2026 \u2014 \u2013",
    "\uff2c\uff2f\uff35\uff24\u3000\uff2e\uff2f\uff29\uff33\uff25", "\uff35\uff80\uff70\uff9d", "\uff76\uff9e\uff8a\uff9f", "\uffe3\uffe5\uffe6 \uffa1\uffc2", "\uff06amp;\uff1b", "\uff1cb\uff1e",
    "cafe\u0301 nai\u0308ve", "\u1100\u1161\u11a8 \uac00\u11a8", "a\u0323\u0307 a\u0307\u0323", "q\u0307\u0323", "\u0344 \u0958 \u2adc \ufb1d", "\u212b \u2126 \u1e69 \U0001d15e", "\u0301 first", "\u1e0b\u0323",
    "line\x85break \u2028two\u2029three\rfour", "\x80\x91\x92\x93\x99 \x81", "\x1b[36;44mblue\x1b[0m \x1b[m \x1b[x \x1b[1;", "\u206a\u206f \ufff9x\ufffc", "\u200f\u202b",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea 1\ufe0f\u20e3", "\u65e5\u672c\u8a9e \u041f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627", "\u0939\u093f\u0928\u094d\u0926\u0940",
    "first <b> line\n&lt;second&gt; &amp;amp;amp; line", "&lt;first&gt; &amp;amp;amp;\n<second> &amp;amp;amp;\n&amp;amp;amp;", "\\u00e9 %20 +", "caf\u00e9 & cr\u00e8me", "a" * 300,
]


def normal_forms():
    """Returns random mixtures of letters, accents, Hangul and characters that have a decomposition."""
    rng = random.Random(5)
    pools = [list(range(0x41, 0x5B)), list(range(0x300, 0x370)), list(range(0x1E00, 0x1F00)), list(range(0x1F00, 0x2000)), list(range(0x1100, 0x1200)), list(range(0xAC00, 0xAD00)),
             [0x591, 0x5B0, 0x64B, 0x93C, 0x9BC, 0x9C7, 0x9BE, 0xDD9, 0xDCF, 0xDCA, 0x1037, 0x3099, 0x304B, 0x1D157, 0x1D165, 0x1D16E, 0x110BA, 0x11099]]
    return ["".join(chr(rng.choice(rng.choice(pools))) for _ in range(rng.randrange(1, 12))) for _ in range(400)]


def main():
    usual = ftfy.fix_text
    pipeline_wan.ftfy.fix_text = lambda text: usual(text, fix_encoding=False)
    cases = {"prompts": [[text, pipeline_wan.prompt_clean(text)] for text in PROMPTS], "normal_forms": [[text, unicodedata.normalize("NFC", text)] for text in normal_forms()]}
    (DATA / "prompt_cleaning.json").write_text(json.dumps(cases).replace('], [', '],\n[') + "\n")


if __name__ == "__main__":
    main()
