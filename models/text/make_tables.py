#!/usr/bin/env python3
"""python3 models/text/make_tables.py: writes html_entities.inc (HTML5's named character references) beside itself, from Python's own table."""
import html.entities
import pathlib


def entities():
    """Sorted by the name's bytes; the second code point is 0 where there is one only."""
    for name, text in sorted(html.entities.html5.items(), key=lambda item: item[0].encode()):
        first, second = [*map(ord, text), 0][:2]
        yield f'{{"{name}",{first:#x},{second:#x}}},'


lines = ["// HTML5's named character references. Written by make_tables.py.", "constexpr Entity kEntities[] = {"]
line = ""
for row in entities():
    if len(line) + len(row) > 159:
        lines.append(line)
        line = ""
    line += row
(pathlib.Path(__file__).parent / "html_entities.inc").write_text("\n".join([*lines, line, "};"]) + "\n")
