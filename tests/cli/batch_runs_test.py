"""Tests `batch` over several processes, some of which are killed: no row is made twice, no row is missing, and no finished video is lost.

tests/bench/README.md reports a longer version of the test of killed runs:
  SPARSEREEL_BATCH_ROWS=24 SPARSEREEL_BATCH_KILLS=10 SPARSEREEL_TEST_MODEL=assets/tiny SPARSEREEL_BATCH_OPTIONS='--size 64x64 --frames 5 --steps 4' \\
    python3 tests/cli/batch_runs_test.py KilledRuns
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

from batch_support import KILLS, OPTIONS, ROWS, BatchTest
from support import PROGRAM, wait_until, write_checkpoint

# The script that the launcher starts as each rank. It runs the program. On rank 2 it kills the program after its first video.
KILLER = """
import os, subprocess, sys
from pathlib import Path
from support import wait_until
if os.environ['OMPI_COMM_WORLD_RANK'] != '2':
    os.execv(sys.argv[1], sys.argv[1:])
process, manifest = subprocess.Popen(sys.argv[1:]), Path('out/manifest.2.jsonl')
wait_until(lambda: manifest.exists() and manifest.stat().st_size, process)
process.kill()
process.wait()
"""


class Shares(BatchTest):
    def test_ranks_of_every_launcher_share_the_rows(self):
        file = self.prompts(6)
        launchers = {'torchrun': ('RANK', 'WORLD_SIZE'), 'mpirun': ('OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE'),
                     'mpich': ('PMI_RANK', 'PMI_SIZE'), 'slurm': ('SLURM_PROCID', 'SLURM_STEP_NUM_TASKS')}
        for name, (rank, size) in launchers.items():
            report = self.set_report(file, name, '--steps', '1', '--frames', '1', env={**os.environ, rank: '1', size: '4'})
            self.assertEqual((report['rank'], report['shares'], report['rendered']), (1, 4, 2), name)
            self.assertEqual(sorted(line['row'] for line in self.manifest(name)), [1, 5])
        self.fail_with(self.batch(file, 'out', env={**os.environ, 'RANK': 'x', 'WORLD_SIZE': '4'}), 2, 'RANK=x')

    def test_batch_script_of_slurm_renders_the_whole_set(self):
        report = self.set_report(self.prompts(2), 'out', '--steps', '1', '--frames', '1', env={**os.environ, 'SLURM_PROCID': '0', 'SLURM_NTASKS': '8'})
        self.assertEqual((report['rendered'], report['shares']), (2, 1))

    def test_shares_make_the_same_videos_as_a_whole_run(self):
        file = self.prompts(5)
        self.succeed(self.batch(file, 'whole', '--steps', '2'))
        for rank in (2, 0, 1):
            self.succeed(self.batch(file, 'out', '--steps', '2', '--share', f'{rank}/3'))
        self.assertEqual(self.videos(), self.videos('whole'))
        self.check_consistent(5)
        self.assertEqual(self.set_report(file, 'out', '--steps', '2')['skipped'], 5)

    def test_status_refuses_files_that_are_not_manifests(self):
        (self.folder / 'out').mkdir()
        self.write('out/manifest.0.jsonl', 'no JSON\n')
        result = self.run_program('batch', '--status', 'out')
        self.assertEqual(result.returncode, 2)
        for words in ('warning: out/manifest.0.jsonl:1: ', 'error: out holds no manifest.*.jsonl with a line in it'):
            self.assertIn(words, result.stderr)
        (self.folder / 'out' / 'manifest.1.jsonl').mkdir()
        self.fail_with(self.run_program('batch', '--status', 'out'), 2, 'out/manifest.1.jsonl: is a folder')

    def test_status_adds_up_the_manifests(self):
        file = self.write('set.csv', 'prompt,width\na,\nb,100\nc,\nd,\n')
        self.batch(file, 'out', '--steps', '2', '--share', '0/3')
        self.batch(file, 'out', '--steps', '2', '--share', '1/3')
        text = self.succeed(self.run_program('batch', '--status', 'out')).stdout
        self.assertIn('2 of 4 rows done, 1 failed, 1 missing', text)
        self.assertIn('set.csv:3: width 100', text)
        (self.folder / 'out' / '0000-a.mp4').unlink()
        self.assertIn('1 of 4 rows done', self.succeed(self.run_program('batch', '--status', 'out')).stdout)
        self.fail_with(self.run_program('batch', '--status', '.'), 2, 'manifest')
        for more in ([file], ['-o', 'out'], ['--share', '0/3']):
            self.fail_with(self.run_program('batch', '--status', 'out', *more), 2, '--status out')

    @unittest.skipUnless(shutil.which('mpirun'), 'mpirun is not installed (openmpi-bin)')
    def test_mpirun_whose_rank_is_killed_loses_no_row(self):
        rows = 2 * ROWS
        file = self.prompts(rows)
        arguments = [*map(str, self.arguments(file, 'out', *OPTIONS))]
        launcher = ['mpirun', '--allow-run-as-root', '--oversubscribe', '--mca', 'orte_abort_on_non_zero_status', '0', '-n', '4']
        victim = [sys.executable, '-c', KILLER, PROGRAM, *arguments]
        subprocess.run([*launcher, *victim], cwd=self.folder, capture_output=True, timeout=300, env={**os.environ, 'PYTHONPATH': str(Path(__file__).parent)})
        first = self.manifest()
        result = subprocess.run([*launcher, PROGRAM, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.check_consistent(rows)
        rendered = [line['row'] for line in self.manifest()]
        self.assertEqual(sorted(rendered), list(range(rows)), 'a row was rendered twice')
        self.assertLess(len(first), rows, 'the rank was not killed in time')


class KilledRuns(BatchTest):
    def checkpoints(self):
        """Returns (name, inode) of each checkpoint. Each write makes a new file with another inode, so the result changes whenever a checkpoint is written."""
        return {(path.name, path.stat().st_ino) for path in (self.folder / 'out').glob('[!.]*.checkpoint.safetensors') if path.exists()}

    def run_and_kill(self, file, lines, delay):
        """Starts a run, and waits until the run has written `lines` manifest lines and after them a checkpoint. Waits `delay` seconds more, then kills the run. Returns
        true if the run had not ended before."""
        lines += len(self.manifest()) if (self.folder / 'out').exists() else 0
        process = subprocess.Popen([PROGRAM, *map(str, self.arguments(file, 'out', '--checkpoint-every', '1', *OPTIONS))], cwd=self.folder,
                                   stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        manifest = self.folder / 'out' / 'manifest.0.jsonl'
        wait_until(lambda: manifest.exists() and manifest.read_bytes().count(b'\n') >= lines, process)
        before = self.checkpoints()
        wait_until(lambda: not self.checkpoints() <= before, process)
        time.sleep(delay)  # a random delay, so that runs are killed at any moment
        process.kill()
        return process.wait() == -signal.SIGKILL

    def test_runs_killed_at_random_moments_make_the_videos_of_one_run(self):
        file = self.prompts()
        self.succeed(self.batch(file, 'whole', *OPTIONS))
        generator = random.Random(6)
        killed = sum(self.run_and_kill(file, lines=generator.randint(0, 1), delay=generator.uniform(0, 0.1)) for _ in range(KILLS))
        report = self.set_report(file, 'out', '--checkpoint-every', '1', *OPTIONS)
        print(f'{ROWS} rows, killed {killed} times, {report["rendered"]} left to the last run')
        self.assertGreater(killed, 0)
        self.assertEqual(self.videos(), self.videos('whole'))
        done = [line for line in self.manifest() if line['state'] == 'done']
        self.assertEqual(len({line['row'] for line in done}), ROWS)
        self.assertLessEqual(len(done), ROWS + killed)

    def test_removes_leftovers_of_killed_runs(self):
        file = self.prompts(2)
        self.succeed(self.batch(file, 'out', '--steps', '2'))
        videos = self.videos()
        name = sorted(videos)[0]
        strangers = ('.mine.12.partial.mp4', f'.{name}', 'notes.txt')
        for left in (f'.{name[:-4]}.12.partial.mp4', f'.{name}.checkpoint.12-1.partial.safetensors', *strangers):
            (self.folder / 'out' / left).write_text('x')
        identity = next(line['identity'] for line in self.manifest() if line['output'] == name)
        write_checkpoint(self.folder / 'out' / f'{name}.checkpoint.safetensors', identity)
        self.assertEqual(self.set_report(file, 'out', '--steps', '2')['skipped'], 2)
        for stranger in strangers:
            (self.folder / 'out' / stranger).unlink()
        self.assertEqual(self.videos(), videos)

    def test_removes_leftovers_of_contact_sheets_and_latents(self):
        row = {'prompt': 'a', 'frames': 5, 'output': 'c.mp4', 'contact_sheet': 'a.png', 'save_latents': 'a.safetensors'}
        file = self.write('set.jsonl', json.dumps(row) + '\n')
        strangers = {'.b.12.partial.png', '.b.12.partial.safetensors', '.a.12.png'}
        (self.folder / 'out').mkdir()
        for left in ('.a.12.partial.png', '.a.12-1.partial.safetensors', *strangers):
            self.write(f'out/{left}', 'x')
        self.succeed(self.batch(file, 'out', '--steps', '2'))
        self.assertEqual(set(self.videos()), strangers | {'a.png', 'a.safetensors', 'c.mp4'})


if __name__ == '__main__':
    unittest.main()
