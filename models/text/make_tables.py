#!/usr/bin/env python3
"""python3.11 models/text/make_tables.py: writes html_entities.inc (HTML5's named character references) and unicode_tables.inc (canonical decompositions,
combining classes, forms of another width, small letters) beside itself, from Python's own tables (Unicode 14)."""
import html.entities
import pathlib
import sys
import unicodedata

HERE = pathlib.Path(__file__).parent
ALL = [chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i < 0xE000]


def write(name, comment, tables):
    lines = [f"// {comment} Written by make_tables.py."]
    for head, rows in tables:
        lines.append(head + " = {")
        line = ""
        for row in rows:
            if len(line) + len(row) > 158:
                lines.append(line)
                line = ""
            line += row + ","
        lines += [line, "};"]
    (HERE / name).write_text("\n".join(lines) + "\n")


def entities():
    """Sorted by the name's bytes; the second code point is 0 where there is one only."""
    rows = []
    for name, text in sorted(html.entities.html5.items(), key=lambda item: item[0].encode()):
        first, second = [*map(ord, text), 0][:2]
        rows.append(f'{{"{name}",{first:#x},{second:#x}}}')
    return rows


def decompositions():
    """A code point's canonical pair (second 0: a single one), and whether the pair composes again. Hangul is arithmetic."""
    rows = []
    for char in ALL:
        parts = unicodedata.decomposition(char)
        if not parts or parts.startswith("<"):
            continue
        first, second = [*(int(part, 16) for part in parts.split()), 0][:2]
        composes = second != 0 and unicodedata.normalize("NFC", chr(first) + chr(second)) == char
        rows.append(f"{{{ord(char):#x},{first:#x},{second:#x},{int(composes)}}}")
    return rows


def combining_classes():
    """Runs of code points of one class other than 0."""
    runs = []
    for char in ALL:
        value = unicodedata.combining(char)
        if value == 0:
            continue
        if runs and runs[-1][1] == ord(char) - 1 and runs[-1][2] == value:
            runs[-1][1] += 1
        else:
            runs.append([ord(char), ord(char), value])
    return [f"{{{first:#x},{last:#x},{value}}}" for first, last, value in runs]


def widths():
    """Fullwidth and halfwidth forms, and the space of an ideograph's width."""
    rows = ["{0x3000,0x20,0x0}"]
    for i in range(0xFF01, 0xFFF0):
        usual = unicodedata.normalize("NFKC", chr(i))
        if usual != chr(i):
            first, second = [*map(ord, usual), 0][:2]
            rows.append(f"{{{i:#x},{first:#x},{second:#x}}}")
    return rows


def lower_case():
    """Runs of capitals, every one or every second, that lie equally far from their small letters. İ alone becomes two code points, and is left to the code."""
    runs = []
    for char in ALL:
        small = char.lower()
        if small == char or len(small) > 1:
            continue
        code, distance = ord(char), ord(small) - ord(char)
        first, last, step, same = runs[-1] if runs else (0, 0, 0, 0)
        if runs and same == distance and code - last in (1, 2) and (first == last or step == code - last):
            runs[-1] = (first, code, code - last, same)
        else:
            runs.append((code, code, 1, distance))
    return [f"{{{first:#x},{last:#x},{step},{distance}}}" for first, last, step, distance in runs]


write("html_entities.inc", "HTML5's named character references.", [("constexpr Entity kEntities[]", entities())])
write("unicode_tables.inc", "Tables of Unicode 14.", [("constexpr Decomposition kDecompositions[]", decompositions()), ("constexpr ClassRun kCombiningClasses[]", combining_classes()),
                                                    ("constexpr Width kWidths[]", widths()), ("constexpr LowerRun kLowerCase[]", lower_case())])
