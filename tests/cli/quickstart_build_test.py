"""The build that app/quickstart makes, of joined sources. Always: every source has its place in it, and two of the joined files compile.
With tests/run --full (SPARSEREEL_FULL): all of it compiles, makes the same bytes as this build, and can be installed.

It stays beside this build, so that the next run compiles only what changed.
"""
import json
import os
import re
import shlex
import subprocess
import unittest
from pathlib import Path

from support import MODEL, PROGRAM, PROMPT, ROOT, CommandLineTest

BUILD = Path(PROGRAM).parent
JOINED = BUILD / 'joined'
LIBRARIES = ('hilbert', 'attention', 'models', 'app')


def run(*command, **options):
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def commands_of(build):
    """{source: how it is compiled} of what the program is made of."""
    commands = json.loads((build / 'compile_commands.json').read_text())
    return {Path(entry['file']): entry for entry in commands if re.match(rf'({"|".join(LIBRARIES)})/', os.path.relpath(output_of(entry), build))}


def output_of(entry):
    words = shlex.split(entry['command'])
    return Path(entry['directory']) / words[words.index('-o') + 1]


def sources_of(joined):
    return [Path(name) for name in re.findall(r'#include "(.*)"', joined.read_text())]


class JoinedBuild(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cache = BUILD / 'CMakeCache.txt'
        if not cache.exists():
            raise unittest.SkipTest('SPARSEREEL is not in its build folder')
        torch = re.search(r'^SPARSEREEL_TORCH_DIR:.*', cache.read_text(), re.M)[0]
        run('cmake', '-S', ROOT, '-B', JOINED, '-G', 'Ninja', '-DSPARSEREEL_TESTS=OFF', '-DSPARSEREEL_CUDA=OFF', '-DCMAKE_UNITY_BUILD=ON', f'-D{torch}')


class Joined(JoinedBuild):
    def joined(self):
        return {source: entry for source, entry in commands_of(JOINED).items() if 'Unity' in source.parts}

    def test_every_source_is_compiled_once_a_library(self):
        joined, apart = self.joined(), {}
        for source, entry in commands_of(JOINED).items():
            for each in sources_of(source) if source in joined else [source]:
                apart.setdefault(output_of(entry).relative_to(JOINED).parts[2], []).append(each)
        self.assertGreater(len(joined), 10)
        self.assertLess(len(joined), 30, 'joined sources are many times fewer')
        for library, sources in apart.items():
            self.assertEqual(len(sources), len(set(sources)), library)
        everywhere = {source for sources in apart.values() for source in sources}
        self.assertGreater(len(everywhere), 100)
        # But for what only this build has: kernels of CUDA, and what tests need.
        missing = {source for source in commands_of(BUILD) if source.suffix == '.cpp' and '/cuda/' not in str(source)} - everywhere
        self.assertEqual({source.relative_to(ROOT) for source in missing if source.is_relative_to(ROOT) and not source.is_relative_to(BUILD)} - {Path('app/media/without_libraries/stand_ins.cpp')}, set())

    def test_joined_sources_compile(self):
        """The largest with libtorch and the largest without: names that meet their namesakes show here."""
        joined = self.joined()
        for library in ('sparsereel_app', 'sparsereel_input'):
            largest = max((source for source in joined if f'{library}.dir' in source.parts), key=lambda source: sum(each.stat().st_size for each in sources_of(source)))
            words = shlex.split(joined[largest]['command'])
            place = words.index('-o')
            with self.subTest(largest):
                run(*words[:place], '-fsyntax-only', largest, cwd=joined[largest]['directory'])


@unittest.skipUnless(os.environ.get('SPARSEREEL_FULL'), 'takes minutes: tests/run --full')
class QuickstartBuild(JoinedBuild):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run('cmake', '--build', JOINED, '--parallel', 2, '--target', 'sparsereel')

    def test_makes_the_same_bytes(self):
        for name in ('clip.mp4', 'frames.safetensors'):
            made = []
            for program in (PROGRAM, JOINED / 'sparsereel'):
                run(program, 'generate', '-m', MODEL, '-p', PROMPT, '--steps', 2, '--device', 'cpu', '--quiet', '-o', self.folder / name)
                made.append((self.folder / name).read_bytes())
            self.assertTrue(made[0] == made[1], name)

    def test_installs_the_library_that_quickstart_does_not_build(self):
        for library in JOINED.glob('libsparsereel.so*'):
            library.unlink()
        prefix = self.folder / 'the prefix'
        run('cmake', '--install', JOINED, '--prefix', prefix)
        self.assertTrue(list(prefix.glob('lib*/**/libsparsereel.so')))
        run(prefix / 'bin' / 'sparsereel', 'generate', '-m', MODEL, '-p', PROMPT, '--steps', 1, '--device', 'cpu', '--quiet', '-o', self.folder / 'clip.mp4')
        self.assertTrue((self.folder / 'clip.mp4').exists())


if __name__ == '__main__':
    unittest.main()
