"""The build that app/quickstart makes, of joined sources: it compiles, makes the same bytes as this build, and can be installed.

It stays beside this build, so that the next run compiles only what changed.
"""
import re
import subprocess
import unittest
from pathlib import Path

from support import MODEL, PROGRAM, PROMPT, ROOT, CommandLineTest

BUILD = Path(PROGRAM).parent
JOINED = BUILD / 'joined'


def run(*command):
    result = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


class QuickstartBuild(CommandLineTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cache = BUILD / 'CMakeCache.txt'
        if not cache.exists():
            raise unittest.SkipTest('SPARSEREEL is not in its build folder')
        torch = re.search(r'^SPARSEREEL_TORCH_DIR:.*', cache.read_text(), re.M)[0]
        run('cmake', '-S', ROOT, '-B', JOINED, '-G', 'Ninja', '-DSPARSEREEL_TESTS=OFF', '-DSPARSEREEL_CUDA=OFF', '-DCMAKE_UNITY_BUILD=ON', f'-D{torch}')
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
