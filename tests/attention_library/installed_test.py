"""Installs the attention component into an empty prefix and builds programs with nothing but that prefix.

By hand: SPARSEREEL_BUILD=build [SPARSEREEL_NVCC=/usr/local/cuda/bin/nvcc] python3 tests/attention_library/installed_test.py
"""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get('SPARSEREEL_BUILD', 'build')).resolve()
NVCC = os.environ.get('SPARSEREEL_NVCC')  # the path of nvcc, set only in builds with GPU kernels
# A built program may depend only on the C and C++ runtimes. It needs no torch, and no CUDA runtime, which the library contains.
RUNTIMES = r'linux-vdso|libstdc\+\+|libm\.|libgcc_s|libc\.|ld-linux|libpthread|libdl|librt'


class InstalledAttention(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        # Remove variables that lead to libraries and packages elsewhere.
        cls.environment = {key: value for key, value in os.environ.items() if key not in ('LD_LIBRARY_PATH', 'CMAKE_PREFIX_PATH', 'CPATH', 'LIBRARY_PATH')}
        cls.prefix = cls.folder / 'the prefix'
        cls.command('cmake', '--install', BUILD, '--prefix', cls.prefix, '--component', 'attention')
        cls.libraries = next(path.parent for path in cls.prefix.rglob('libsparsereel_attention.so'))

    @classmethod
    def command(cls, *arguments):
        result = subprocess.run([*map(str, arguments)], cwd=cls.folder, capture_output=True, text=True, timeout=600, env=cls.environment, check=False)
        if result.returncode != 0:
            raise AssertionError(f'{arguments}: {result.stdout}{result.stderr}')
        return result.stdout

    def build(self, name, *options):
        self.command('cmake', '-S', HERE, '-B', name, '-G', 'Ninja', f'-DCMAKE_PREFIX_PATH={self.prefix}', '-DCMAKE_BUILD_TYPE=Release', *options)
        self.command('cmake', '--build', name)
        return self.folder / name

    def expect_examples_output(self, build):
        lines = self.command(build / 'example').splitlines()
        errors = [float(re.fullmatch(rf'topk {topk}: relative L1 (\S+)', line)[1]) for topk, line in zip(('1', '0.25'), lines)]
        self.assertLess(errors[0], 1e-5)
        self.assertGreater(errors[1], 1e-3)
        self.assertRegex(lines[2], 'Hilbert order begins with 0, ')
        self.assertRegex(lines[3], 'bad argument: topk is 2; ')
        self.assertRegex(self.command(build / 'plain'), r'^version 0\.1\.0, cpu block-sparse fp32 \(\w+\).*, out 1\.0000\nworkspace too small: attention: ')

    def test_prefix_holds_only_the_library_its_headers_and_its_package(self):
        files = sorted(str(path.relative_to(self.prefix)) for path in self.prefix.rglob('*') if path.is_file())
        names = [Path(file).name for file in files]
        for wanted in ('attention.h', 'attention.hpp', 'libsparsereel_attention.a', 'libsparsereel_attention.so', 'sparsereelConfig.cmake', 'sparsereelConfigVersion.cmake'):
            self.assertIn(wanted, names)
        for file in files:
            self.assertRegex(file, r'^include/sparsereel/attention\.hp?p?$|/libsparsereel_attention\.|/cmake/sparsereel/sparsereel')

    def test_programs_built_from_the_prefix_match_their_own_attention(self):
        build = self.build('shared')
        self.expect_examples_output(build)
        self.assertIn('libsparsereel_attention.so', self.command('ldd', build / 'example'))

    def test_programs_link_the_archive(self):
        build = self.build('static', '-DEXAMPLE_STATIC=ON')
        self.expect_examples_output(build)
        self.assertNotIn('libsparsereel', self.command('ldd', build / 'example'))

    def test_library_exports_only_its_c_functions_and_needs_only_the_runtimes(self):
        library = self.libraries / 'libsparsereel_attention.so'
        declared = set(re.findall(r'\b(sparsereel_\w+)\(', (self.prefix / 'include/sparsereel/attention.h').read_text()))
        shown = {line.split()[-1] for line in self.command('nm', '-D', '--defined-only', library).splitlines()}
        self.assertEqual(shown, declared)
        self.assertGreater(len(shown), 10)
        for line in self.command('ldd', '-r', library).splitlines():
            self.assertRegex(line, RUNTIMES)

    def test_library_contains_nothing_of_torch_or_yaml(self):
        for name in ('libsparsereel_attention.so', 'libsparsereel_attention.a'):
            symbols = self.command('nm', '-C', self.libraries / name)
            self.assertIn('sparsereel::attention::CpuExecutor::run', symbols)
            self.assertNotRegex(symbols, r'\b(at|c10|torch|YAML)::')
        for header in self.prefix.rglob('*.h*'):
            self.assertNotRegex(header.read_text(), r'#include [<"](torch|ATen|c10|cuda)')

    @unittest.skipUnless(NVCC, 'a build without CUDA')
    def test_program_for_a_gpu_is_built_from_the_prefix(self):
        cuda = [f'-DCMAKE_CUDA_COMPILER={NVCC}', '-DEXAMPLE_CUDA=ON', '-DCMAKE_CUDA_ARCHITECTURES=80']  # a binary for 8.0, and PTX for newer GPUs
        build = self.build('cuda', *cuda)
        self.build('cuda static', '-DEXAMPLE_STATIC=ON', f'-DCUDAToolkit_ROOT={Path(NVCC).parent.parent}', *cuda)
        if not shutil.which('nvidia-smi') or subprocess.run(['nvidia-smi', '-L'], capture_output=True, check=False).returncode != 0:
            self.skipTest('built; no GPU to run it on')
        for folder in (build, self.folder / 'cuda static'):
            shown = self.command(folder / 'example_cuda', 2, 30, 17776, 64, 0.5)
            self.assertLess(float(re.search(r'relative L1 (\S+)', shown)[1]), 0.3)
            self.assertIn('too short', self.command(folder / 'example_cuda', 1, 2, 1000, 64, 0.5))


if __name__ == '__main__':
    unittest.main()
