"""app/quickstart, with stand-ins for everything that it calls: where it runs the program, when it configures again, and which sources it joins."""
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
        self.script(self.tree / '.venv' / 'bin' / 'pip', 'echo "$@" >> pip.log')
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
        """The arguments of each cmake since the last call."""
        log = self.tree / 'cmake.log'
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    def test_paths_are_meant_from_where_it_is_called(self):
        elsewhere = self.folder / 'else where'
        elsewhere.mkdir()
        self.assertEqual(self.run_quickstart('--cpu', '-p', 'a star', '-o', 'star.mp4', cwd=elsewhere),
                         [str(elsewhere), 'generate', '-p', 'a star', '-o', 'star.mp4'])

    def test_a_step_that_fails_ends_it(self):
        self.script(self.tree / 'build' / 'sparsereel', 'touch made')
        for tool in (self.tree / '.venv' / 'bin' / 'pip', self.folder / 'bin' / 'cmake'):
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

    def test_configures_once(self):
        self.run_quickstart('--cpu')
        self.assertEqual(len(self.configured()), 1)
        (self.tree / 'build' / 'CMakeCache.txt').write_text('SPARSEREEL_CUDA:STRING=OFF\n')
        self.run_quickstart('--cpu')
        self.assertEqual(self.configured(), [])

    def test_sources_are_joined_for_users_and_apart_for_the_tests(self):
        self.run_quickstart('--cpu')
        self.assertIn('-DCMAKE_UNITY_BUILD=ON', self.configured()[0])
        (self.tree / 'build' / 'CMakeCache.txt').write_text('SPARSEREEL_CUDA:STRING=OFF\n')
        self.run_quickstart('--cpu', '--build-only', '--tests')
        self.assertIn('-DCMAKE_UNITY_BUILD=OFF', self.configured()[0])
        shutil.rmtree(self.tree / 'build')
        (self.tree / 'build').mkdir()
        self.run_quickstart('--cpu', '--build-only', '--tests')
        self.assertIn('-DCMAKE_UNITY_BUILD=OFF', self.configured()[0])

    def test_build_of_a_machine_without_a_gpu_gets_kernels_when_one_is_there(self):
        self.run_quickstart('--cpu')
        self.assertIn('-DSPARSEREEL_CUDA=OFF', self.configured()[0])
        (self.tree / 'build' / 'CMakeCache.txt').write_text('SPARSEREEL_CUDA:STRING=OFF\n')
        self.run_quickstart('--gpu')
        self.assertIn('-DSPARSEREEL_CUDA=AUTO', self.configured()[0])
        (self.tree / 'build' / 'CMakeCache.txt').write_text('SPARSEREEL_CUDA:STRING=AUTO\n')
        self.run_quickstart('--gpu')
        self.assertEqual(self.configured(), [])

    def test_the_proof_in_a_bare_debian_refuses_a_part_that_it_does_not_have(self):
        folder = self.folder / 'debian'
        self.script(self.folder / 'bin' / 'debootstrap', 'exit 1')
        for arguments in ([], [folder, 'test'], [folder, '']):
            result = subprocess.run([ROOT / 'tests' / 'fresh-debian', *arguments], capture_output=True, text=True, env=self.environment)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn('usage: tests/fresh-debian DIR [quickstart|tests|all|gpu]', result.stderr)
        self.assertFalse(folder.exists())


class JoinedSources(unittest.TestCase):
    def groups(self, count, **texts):
        """{source: group} of sources with these private parts; a source that stays alone is missing."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in texts.items():
                (Path(folder) / f'{name}.cpp').write_text(f'namespace n {{\nnamespace {{\n\n{text}\n\n}}  // namespace\n}}  // namespace n\n')
            lines = subprocess.run(['python3', ROOT / '.cmake' / 'unity_groups.py', str(count), *(Path(folder) / f'{name}.cpp' for name in texts)],
                                   capture_output=True, text=True, check=True).stdout.splitlines()
        return {Path(path).stem: group for group, path in (line.split('\t') for line in lines)}

    def test_sources_without_names_in_common_are_joined(self):
        groups = self.groups(1, a='int parse(int x) {\n  return x;\n}', b='constexpr int kSize = 3;', c='struct Row {};')
        self.assertEqual(set(groups.values()), {'0'})
        self.assertEqual(set(groups), set('abc'))

    def test_private_names_never_meet_their_namesakes(self):
        for first, second in (('int parse(int x) {', 'bool parse(bool x) {'), ('constexpr int kSize = 3;', 'const double kSize = 4;'),
                              ('struct Row {};', 'using Row = int;'), ('#define WIDE 1', '#define WIDE 2'),
                              ('int parse(int x) {', 'int twice(int x) {\n  return parse(x);\n}'), ('using Row = int;', 'int of(Row row) {')):
            with self.subTest(first=first, second=second):
                groups = self.groups(1, a=first, b=second)
                self.assertNotEqual(groups['a'], groups['b'])

    def test_members_and_comments_are_no_namesakes(self):
        groups = self.groups(1, a='int parse(int x) {', b='int of(const Row& row) {\n  return row.parse(1) + other::parse(2);  // parse(3) "parse(4)"\n}')
        self.assertEqual(groups['a'], groups['b'])

    def test_a_source_that_opens_a_namespace_stays_alone(self):
        self.assertEqual(set(self.groups(1, a='using namespace m;', b='struct Row {};')), {'b'})

    def test_groups_are_balanced(self):
        groups = self.groups(2, a=f'// {"x" * 4000}', b=f'// {"x" * 3000}', c=f'// {"x" * 2000}')
        self.assertNotEqual(groups['a'], groups['b'])
        self.assertEqual(groups['b'], groups['c'])


if __name__ == '__main__':
    unittest.main()
