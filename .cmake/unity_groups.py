"""Which sources may be compiled as one file: prints "GROUP<TAB>SOURCE" for each that goes into a group.

usage: unity_groups.py GROUPS SOURCE...

Names that are private to a file, in its anonymous namespace or as macros, would be seen by the files after it: a file goes into a group only if no other
file there mentions one of its private names, nor it one of theirs. That may take more groups than GROUPS. A file with `using namespace` stays alone. Groups are
balanced by size. Relies on clang-format, which puts declarations of a namespace at the start of a line.
"""
import re
import sys

DECLARATIONS = [re.compile(pattern) for pattern in (
    r'(?:template.*>\s*)?(?:struct|class|enum class|enum)\s+(\w+)',
    r'using (\w+) =',
    r'[^(]*?\b(\w+)\s*(?:\[.*?\])?\s*[={;]',
    r'[^(]*?(?<!::)\b(\w+)\(',  # not a member: it has its class's name before it
)]
MACRO = re.compile(r'#\s*define\s+(\w+)')


class Source:
    def __init__(self, path):
        with open(path, encoding='utf-8') as file:
            text = file.read()
        self.path, self.size = path, len(text)
        self.private = private_names(text)
        code = re.sub(r'//.*|"(?:\\.|[^"\\])*"', '', text)
        self.mentioned = set(re.findall(r'(?<![.>:\w])(?:[A-Z]\w*|k[A-Z]\w*|\w+(?=\())', code))  # types, constants, calls; not of an object or a namespace
        self.alone = re.search(r'^\s*using namespace ', text, re.M) is not None

    def fits(self, other):
        return not (self.private & other.mentioned or other.private & self.mentioned)


def private_names(text):
    names, anonymous = set(), False
    for line in text.splitlines():
        if re.match(r'namespace \{|\}  // namespace$', line):
            anonymous = line.endswith('{')
        elif re.match(r'using \w+ =', line) or anonymous and re.match(r'\w', line) and not re.match(r'namespace |using [\w:]+;', line):
            names.update(first(DECLARATIONS, line))
        names.update(first([MACRO], line))
    return names


def first(patterns, line):
    return next((found.groups() for found in (pattern.match(line) for pattern in patterns) if found), ())


def grouped(sources, count):
    groups = [[] for _ in range(count)]
    for source in sorted(sources, key=lambda source: -source.size):
        if source.alone:
            continue
        fitting = [group for group in groups if all(map(source.fits, group))]
        if not fitting:
            groups.append([])
            fitting = groups[-1:]
        min(fitting, key=lambda group: sum(member.size for member in group)).append(source)
    return groups


if __name__ == '__main__':
    for number, group in enumerate(grouped([Source(path) for path in sys.argv[2:]], int(sys.argv[1]))):
        for member in group:
            print(f'{number}\t{member.path}')
