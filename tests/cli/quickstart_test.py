"""Tests app/quickstart: where it runs the program, and when it configures the build again. Stand-ins replace every program that the script calls."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Quickstart(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix='sparsereel-quickstart-'))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.tree = self.folder / 'tree'
        self.environment = {**os.environ, 'PATH': f'{self.folder / "bin"}:{os.environ["PATH"]}'}
        (self.tree / 'app').mkdir(parents=True)
        shutil.copy(ROOT / 'app' / 'quickstart', self.tree / 'app')
        self.script(self.folder / 'bin' / 'dpkg-query', 'echo install ok installed')
        self.script(self.folder / 'bin' / 'cmake', 'echo "$@" >> cmake.log; touch build/build.ninja')
        self.script(self.folder / 'bin' / 'ninja', 'echo no work to do')
        self.script(self.folder / 'bin' / 'nvcc', 'exit 0')
        self.script(self.tree / '.venv' / 'bin' / 'pip', 'echo of another folder >&2; exit 1')  # in a copied folder, pip still belongs to the old folder
        self.script(self.tree / '.venv' / 'bin' / 'python3', 'echo "$@" >> pip.log')
        self.script(self.tree / 'build' / 'sparsereel', 'pwd; printf "%s\\n" "$@"')

    @staticmethod
    def script(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\n{text}\n')
        path.chmod(0o755)

    def run_quickstart(self, *arguments, cwd=None):
        result = subprocess.run([self.tree / 'app' / 'quickstart', *arguments], cwd=cwd or self.folder, capture_output=True, text=True,
                                env=self.environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.splitlines()

    def configured(self):
        """Returns the arguments of each cmake call since the last call of this function."""
        log = self.tree / 'cmake.log'
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    def test_paths_are_relative_to_the_working_directory(self):
        elsewhere = self.folder / 'else where'
        elsewhere.mkdir()
        self.assertEqual(self.run_quickstart('--cpu', '-p', 'a star', '-o', 'star.mp4', cwd=elsewhere),
                         [str(elsewhere), 'generate', '-p', 'a star', '-o', 'star.mp4'])

    def test_stops_at_a_step_that_fails(self):
        self.script(self.tree / 'build' / 'sparsereel', 'touch made')
        for tool in (self.tree / '.venv' / 'bin' / 'python3', self.folder / 'bin' / 'cmake'):
            with self.subTest(tool=tool.name):
                stub = tool.read_text()
                self.script(tool, 'exit 1')
                result = subprocess.run([self.tree / 'app' / 'quickstart', '--cpu'], cwd=self.folder, capture_output=True, text=True, env=self.environment)
                self.assertNotEqual(result.returncode, 0)
                self.assertFalse((self.folder / 'made').exists())
                tool.write_text(stub)

    def test_installs_the_wheels_that_the_machine_needs_once(self):
        log = self.tree / 'pip.log'
        for machine, wanted, unwanted in (('--cpu', ['--no-deps', 'nvidia-cuda-runtime=='], 'nvcc'), ('--gpu', ['torch=='], '--no-deps')):
            for _ in range(2):
                self.run_quickstart(machine)
            calls = log.read_text().splitlines()
            self.assertEqual(len(calls), 1, calls)
            for word in wanted:
                self.assertIn(word, calls[0])
            self.assertNotIn(unwanted, calls[0])
            log.unlink()

    def test_passes_further_flags_to_cmake_at_the_first_build(self):
        self.environment['SPARSEREEL_CMAKE_FLAGS'] = '-DCMAKE_COMPILE_WARNING_AS_ERROR=ON -DCMAKE_CXX_COMPILER=clang++'
        self.run_quickstart('--cpu')
        self.assertTrue(self.configured()[0].endswith(self.environment['SPARSEREEL_CMAKE_FLAGS']))

    def test_configures_once(self):
        self.run_quickstart('--cpu')
        self.assertEqual(len(self.configured()), 1)
        (self.tree / 'build' / 'CMakeCache.txt').write_text('SPARSEREEL_CUDA:STRING=OFF\n')
        self.run_quickstart('--cpu')
        self.assertEqual(self.configured(), [])

    def test_build_without_a_gpu_gets_kernels_when_a_gpu_is_added(self):
        self.run_quickstart('--cpu')
        self.assertIn('-DSPARSEREEL_CUDA=OFF', self.configured()[0])
        (self.tree / 'build' / 'CMakeCache.txt').write_text('SPARSEREEL_CUDA:STRING=OFF\n')
        self.run_quickstart('--gpu')
        self.assertIn('-DSPARSEREEL_CUDA=AUTO', self.configured()[0])
        (self.tree / 'build' / 'CMakeCache.txt').write_text('SPARSEREEL_CUDA:STRING=AUTO\n')
        self.run_quickstart('--gpu')
        self.assertEqual(self.configured(), [])

    def test_configures_a_copied_folder_again(self):
        self.run_quickstart('--cpu')
        (self.tree / 'build' / 'CMakeCache.txt').write_text(f'CMAKE_HOME_DIRECTORY:INTERNAL={self.tree}\n')
        self.configured()
        self.run_quickstart('--cpu')
        self.assertEqual(self.configured(), [])
        link = self.folder / 'link'
        link.symlink_to(self.tree)
        subprocess.run([link / 'app' / 'quickstart', '--cpu'], capture_output=True, env=self.environment, check=True)
        self.assertEqual(self.configured(), [])
        for copied in (shutil.copytree, shutil.move):  # the old folder stays, or it is gone
            old, self.tree = self.tree, self.folder / copied.__name__
            copied(old, self.tree)
            self.run_quickstart('--cpu')
            self.assertEqual([line.startswith('-S . -B build -G Ninja') for line in self.configured()], [True])
            self.assertFalse((self.tree / 'build' / 'CMakeCache.txt').exists())
            (self.tree / 'build' / 'CMakeCache.txt').write_text(f'CMAKE_HOME_DIRECTORY:INTERNAL={self.tree}\n')

    def test_copied_virtual_environment_installs_into_the_copy(self):
        subprocess.run(['python3', '-m', 'venv', self.folder / 'old'], check=True)
        shutil.copytree(self.folder / 'old', self.folder / 'new', symlinks=True)
        shutil.rmtree(self.folder / 'old')
        told = subprocess.run([self.folder / 'new' / 'bin' / 'python3', '-m', 'pip', '--version'], capture_output=True, text=True, check=True)
        self.assertIn(str(self.folder / 'new'), told.stdout)

    def test_fresh_debian_script_refuses_unknown_parts(self):
        folder = self.folder / 'debian'
        self.script(self.folder / 'bin' / 'debootstrap', 'exit 1')
        for arguments in ([], [folder, 'test'], [folder, ''], [folder, 'trixi'], [folder, 'trixie', 'quick']):
            result = subprocess.run([ROOT / 'tests' / 'fresh-debian', *arguments], capture_output=True, text=True, env=self.environment)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn('usage: tests/fresh-debian DIR [SUITE] [quickstart|tests|all|gpu|wheel|deb]', result.stderr)
        self.assertFalse(folder.exists())


if __name__ == '__main__':
    unittest.main()
