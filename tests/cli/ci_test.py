"""Tests that .ci/run builds what a newcomer builds, and that its build for the tests compiles only what the first build lacks. Works in a copy of this tree with
stand-ins. The one for the compiler only looks for the word BROKEN. Those for the tests and the other steps of .ci/run only say that they ran."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ['SPARSEREEL']).parent
LIBRARIES = ('models/public_members.cpp', 'models/text_to_video.cpp', 'attention/library/c_interface.cpp')  # sources of the libraries for other programs, which our program does not use

# Stands in for the compiler. It passes CMake's test compilations to the real compiler. For our sources it only writes a script that creates the file `made`, and
# fails if a source has the word BROKEN.
COMPILER = """#!/usr/bin/env python3
import os, re, sys
from pathlib import Path
words = sys.argv[1:]
output = Path(words[words.index('-o') + 1]) if '-o' in words else None
if output is None or output.is_absolute() or 'CMakeFiles/cm' in str(output) or 'CMakeScratch' in os.getcwd() or 'CMakeTmp' in os.getcwd():
    os.execv('REAL', ['REAL', *words])
sources = []
if '-c' in words:
    source = Path(words[words.index('-c') + 1])
    sources = [Path(name) for name in re.findall(r'#include "(/.*)"', source.read_text())] if 'Unity' in source.parts else [source]
    with open('TREE/compiled.log', 'a') as log:
        log.writelines(f'{each}\\n' for each in sources)
    broken = [each for each in sources if 'BROKEN' in each.read_text()]
    if broken:
        sys.exit('\\n'.join(f'error: {each}' for each in broken))
    if '-MF' in words:
        Path(words[words.index('-MF') + 1]).write_text(f'{output}: {" ".join(map(str, [source, *sources]))}\\n')
output.write_text('#!/bin/sh\\ntouch made\\n')
output.chmod(0o755)
"""


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@unittest.skipUnless((BUILD / 'CMakeCache.txt').exists(), 'SPARSEREEL is not in its build folder')
class CleanClone(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix='sparsereel-ci-'))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.tree = cls.folder / 'tree'
        files = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard'], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        for name in files:
            if (ROOT / name).exists() and not name.startswith('assets/'):
                (cls.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, cls.tree / name)
        cache = (BUILD / 'CMakeCache.txt').read_text()
        torch = cls.tree / '.venv' / 'lib' / 'python3' / 'site-packages' / 'torch'
        torch.parent.mkdir(parents=True)
        torch.symlink_to(re.search(r'^SPARSEREEL_TORCH_DIR:\w+=(.*)', cache, re.M)[1])
        version = re.search(r'^torch_version=(.*)', (ROOT / 'app' / 'quickstart').read_text(), re.M)[1]
        (cls.tree / '.venv' / '.sparsereel').write_text(f'{version} cpu\n')
        script(cls.folder / 'bin' / 'dpkg-query', '#!/bin/sh\necho install ok installed\n')
        script(cls.folder / 'bin' / 'nvidia-smi', '#!/bin/sh\nexit 1\n')
        compiler = cls.folder / 'bin' / 'c++'
        script(compiler, COMPILER.replace('REAL', re.search(r'^CMAKE_CXX_COMPILER:\w+=(.*)', cache, re.M)[1]).replace('TREE', str(cls.tree)))
        script(cls.tree / 'tests' / 'format', '#!/bin/sh\n')  # the real script needs git, but this copy is no repository
        script(cls.tree / 'tests' / 'run', '#!/bin/sh\necho "the tests ran"\n')
        script(cls.tree / '.ci' / 'newest-debian', '#!/bin/sh\necho "the newest Debian"\n')
        script(cls.tree / '.ci' / 'wheel', '#!/bin/sh\necho "the wheel"\n')
        shutil.copy2(cls.tree / '.ci' / 'kernels', cls.tree / '.ci' / 'real-kernels')
        script(cls.tree / '.ci' / 'kernels', '#!/bin/sh\necho "the kernels"\n')
        os.environ.pop('SPARSEREEL_CMAKE_FLAGS', None)  # continuous integration sets this variable, and it would change the build
        cls.environment = {**os.environ, 'CCACHE_DISABLE': '1', 'CXX': str(compiler), 'PATH': f'{cls.folder / "bin"}:{os.environ["PATH"]}'}

    def setUp(self):
        shutil.rmtree(self.tree / 'build', ignore_errors=True)
        self.compiled()

    def run_in_tree(self, *command):
        return subprocess.run(command, cwd=self.tree, env=self.environment, capture_output=True, text=True)

    def ci(self):
        return self.run_in_tree('.ci/run')

    def compiled(self):
        """Returns the sources that were compiled since the last call of this function."""
        log = self.tree / 'compiled.log'
        names = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return {str(Path(name).relative_to(self.tree)) for name in names if 'build' not in Path(name).relative_to(self.tree).parts}

    def test_makes_the_first_video_and_then_runs_the_tests(self):
        result = self.ci()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue((self.tree / 'made').exists())
        self.assertIn('the newest Debian\nthe kernels\nthe tests ran\nthe wheel', result.stdout)

    def test_compiles_the_kernels_or_says_that_nvcc_is_missing(self):
        for name in ('cmake', 'ninja'):
            script(self.folder / 'tools' / name, f'#!/bin/sh\necho "{name} $*" >> commands.log\n')
        environment = {**self.environment, 'SPARSEREEL_CMAKE_FLAGS': '-DA=1', 'PATH': f'{self.folder / "tools"}:/usr/bin:/bin'}
        kernels = (self.tree / '.ci' / 'real-kernels').read_text().replace('/usr/local/cuda/bin', str(self.folder / 'toolkit'))
        script(self.tree / '.ci' / 'real-kernels', kernels)
        run = lambda: subprocess.run(['.ci/real-kernels'], cwd=self.tree, env=environment, capture_output=True, text=True)
        log = self.tree / 'commands.log'
        result = run()
        self.assertEqual((result.returncode, log.exists()), (0, False))
        self.assertRegex(result.stderr, r'\ALEFT OUT: no kernel was compiled, because nvcc was not found\. .*\n\Z')
        script(self.folder / 'toolkit' / 'nvcc', '#!/bin/sh\n')
        result = run()
        self.assertEqual((result.returncode, result.stderr), (0, ''))
        configured, built = log.read_text().splitlines()
        self.assertRegex(configured, r'-B build-kernels .*-DSPARSEREEL_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90a-real .*-DA=1$')
        self.assertEqual(built, 'ninja -C build-kernels kernels')
        script(self.folder / 'tools' / 'ninja', '#!/bin/sh\nexit 1\n')
        self.assertEqual(run().returncode, 1)

    def test_treats_warnings_as_errors_but_not_for_users(self):
        def kinds_of_warnings(*command):
            shutil.rmtree(self.tree / 'build', ignore_errors=True)
            self.assertEqual(self.run_in_tree(*command).returncode, 0)
            commands = json.loads((self.tree / 'build' / 'compile_commands.json').read_text())
            return {'-Werror' in entry['command'] for entry in commands}

        self.assertEqual(kinds_of_warnings('.ci/run'), {True})
        self.assertEqual(kinds_of_warnings('./app/quickstart'), {False})

    def test_fails_if_a_source_does_not_compile(self):
        source = self.tree / 'models' / 'layers' / 'norm.cpp'
        text = source.read_text()
        self.addCleanup(source.write_text, text)
        source.write_text(text + '// BROKEN\n')
        result = self.ci()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(f'error: {source}', result.stdout + result.stderr)
        self.assertNotIn('the tests ran', result.stdout)

    def test_first_command_compiles_every_source_of_the_program(self):
        self.assertEqual(self.ci().returncode, 0)
        compiled = self.compiled()
        every = {str(path.relative_to(self.tree)) for folder in ('app', 'models', 'attention', 'hilbert') for path in (self.tree / folder).rglob('*.cpp')}
        of_gpu_builds = re.search(r'SPARSEREEL_KERNEL_CALLS CONFIGURE_DEPENDS ([^)]*)', (self.tree / '.cmake' / 'cuda.cmake').read_text()).group(1).split()
        only_elsewhere = {name for name in every if '/without_libraries/' in name or '/without_httplib/' in name or '/wheel/' in name or '/cuda/' in name or name in (*of_gpu_builds, *LIBRARIES)}
        self.assertEqual(every - only_elsewhere, compiled)

    def test_error_in_any_source_breaks_the_first_command(self):
        self.assertEqual(self.ci().returncode, 0)
        sources = self.compiled()
        for name in sources:
            text = (self.tree / name).read_text()
            self.addCleanup((self.tree / name).write_text, text)
            (self.tree / name).write_text(text + '// BROKEN\n')
        result = self.run_in_tree('ninja', '-C', 'build', '-k', '0', 'sparsereel')
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual({str(Path(name).relative_to(self.tree)) for name in re.findall(r'^error: (.*)', result.stdout, re.M)}, sources)

    def test_build_of_the_tests_compiles_no_source_again(self):
        self.assertEqual(self.ci().returncode, 0)
        program = self.compiled()
        result = self.run_in_tree('app/quickstart', '--build-only', '--tests')
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        tests = self.compiled()
        self.assertTrue(any(name.startswith('tests/') for name in tests))
        again = {'app/before_libraries.cpp', 'app/early_cuda.cpp'} | {name for name in program if name.startswith('app/media/') and '/with_libraries/' not in name}
        again |= {name for name in program if 'SPARSEREEL_CUDA' in (self.tree / name).read_text()}  # a build for GPUs compiles these sources differently
        self.assertEqual(tests & program - again, set())


if __name__ == '__main__':
    unittest.main()
