"""Makes random lines in many scripts, with which tokenizers are compared."""
import random
import unicodedata

WORDS = ("a the of in on and with panda camera guitar forest moves slowly cinematic detail red blue sunset Don't e-mail 4k 35mm 1,000 3.14 U.S. caf\u00e9 na\u00efve "
         "\u00fcber stra\u00dfe gar\u00e7on ma\u00f1ana \u017b\u00f3\u0142\u0107 \u043f\u0430\u043d\u0434\u0430 \u0438\u0433\u0440\u0430\u0435\u0442 \u03ba\u03cc\u03c3\u03bc\u03bf\u03c2 \u5c0f\u718a\u732b "
         "\u7af9\u6797 \u6771\u4eac \u30d1\u30f3\u30c0 \ud310\ub2e4 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 Vi\u1ec7t").split()
RUNS = ["-", ".", "!", "ha", "=", "*", "a", "\u2026", "\u2014", "0", "~", "w", "\u54c8"]
SPACES = ["  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\u1680", "\u0085", "\ufeff", "\u00ad", "\u2060", "\u180e"]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3", "\u2764\ufe0f", "\U0001f44b\U0001f3fd", "\u00a9\ufe0f"]
# First and last code points of blocks of Unicode: letters and marks of many scripts, compatibility forms, symbols.
BLOCKS = [(0x21, 0x7E), (0xA1, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x370, 0x3FF), (0x400, 0x52F), (0x531, 0x58F), (0x591, 0x5F4), (0x600, 0x6FF),
          (0x700, 0x74F), (0x780, 0x7B1), (0x900, 0x97F), (0x980, 0x9FF), (0xA00, 0xA7F), (0xB80, 0xBFF), (0xC00, 0xC7F), (0xD00, 0xD7F), (0xD80, 0xDFF),
          (0xE01, 0xE5B), (0xE80, 0xEDF), (0xF00, 0xFDA), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FD),
          (0x1400, 0x167F), (0x1780, 0x17FF), (0x1800, 0x18AA), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2010, 0x205E), (0x2070, 0x209C), (0x20A0, 0x20C0),
          (0x2100, 0x214F), (0x2150, 0x218B), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2460, 0x24FF), (0x2500, 0x257F), (0x3041, 0x309F), (0x30A0, 0x30FF),
          (0x3105, 0x312F), (0x3200, 0x33FF), (0x4E00, 0x9FFF), (0xA000, 0xA48C), (0xAC00, 0xD7A3), (0xF900, 0xFAD9), (0xFB00, 0xFB4F), (0xFB50, 0xFDFF),
          (0xFE70, 0xFEFC), (0xFF01, 0xFFEE), (0x10330, 0x1034A), (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F), (0x20000, 0x2A6DF), (0xE000, 0xE0FF)]


def random_lines(count):
    rng = random.Random(7)

    def letters():
        first, last = rng.choice(BLOCKS)
        return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 8)))

    def marks():
        return rng.choice("aeiounAEO\u00e9\u0915\u30ab\u0627") + "".join(chr(rng.randint(0x300, 0x345)) for _ in range(rng.randint(1, 3)))

    kinds = [(12, lambda: rng.choice(WORDS)), (6, letters), (1, marks), (1, lambda: unicodedata.normalize("NFD", rng.choice(WORDS))), (1, lambda: rng.choice(EMOJI)),
             (1, lambda: rng.choice(RUNS) * rng.randint(2, 15)), (0.3, lambda: chr(rng.choice((rng.randrange(32), rng.randint(0x7F, 0x9F))))),
             (0.1, lambda: "\u2581"), (0.2, lambda: rng.choice(("</s>", "<pad>", "<unk>", "<extra_id_0>", "<extra_id_99>", "\uff1c/s\uff1e")))]
    weights = [weight for weight, _ in kinds]
    for _ in range(count):
        parts = (kind() for _, kind in rng.choices(kinds, weights, k=rng.randint(1, 12)))
        yield "".join(part + rng.choices((" ", "", rng.choice(SPACES)), (8, 2, 1))[0] for part in parts)
