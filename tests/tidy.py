#!/usr/bin/env python3
"""tests/tidy.py BUILD: runs clang-tidy over our sources, one per core at a time. Removes from the compile commands what only GCC understands."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

root = pathlib.Path(__file__).resolve().parent.parent


def of_one_source():
    """Yields the build's compile commands, one per source. The command of a joined file is yielded once for each source that it joins."""
    for entry in json.loads((root / sys.argv[1] / "compile_commands.json").read_text()):
        joined = re.findall(r'#include "(.*)"', pathlib.Path(entry["file"]).read_text()) if "/Unity/" in entry["file"] else []
        for source in joined or [entry["file"]]:
            yield {**entry, "file": source, "command": entry["command"].replace(entry["file"], source)}


if sys.argv[1:] in (["-h"], ["--help"]):
    print(__doc__)
    sys.exit()
if len(sys.argv) != 2 or not (root / sys.argv[1] / "compile_commands.json").is_file():
    sys.exit(f"{__doc__}\nBUILD is a folder that CMake has configured: with a compile_commands.json.")
commands = []
for entry in of_one_source():
    source = pathlib.Path(entry["file"])
    if source.suffix != ".cpp" or root not in source.parents or source.is_relative_to(root / "tests") or "build" in source.relative_to(root).parts[0]:
        continue
    words, kept, skip = entry["command"].split(), [], False
    for word in words[next(i for i, w in enumerate(words) if w.endswith(("c++", "g++"))):]:
        if skip:
            skip = False
        elif word == "-include":  # GCC's precompiled header, which clang cannot read
            skip = True
        elif word not in ("-fpch-preprocess", "-Winvalid-pch", "-fopenmp", "-Wno-restrict", "-Wno-stringop-overflow", "-Wno-array-bounds", "-Wno-subobject-linkage", "-Wno-dangling-reference"):
            kept.append(word)
    commands.append({**entry, "command": " ".join(kept)})
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "compile_commands.json").write_text(json.dumps(commands))

    def tidy(entry):
        result = subprocess.run(["clang-tidy", "-quiet", "-p", folder, entry["file"]], capture_output=True, text=True)
        return entry["file"], result.returncode, result.stdout

    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, code, output in pool.map(tidy, commands):
            if code:
                failed += 1
                print(f"{file}\n{output}")
print(f"clang-tidy: {len(commands)} files, {failed} with findings")
sys.exit(1 if failed else 0)
