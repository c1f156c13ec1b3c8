"""Tests how the program prepares its process at its start: OpenMP's wait policy, stack limit, working directory."""
import json
import os
import resource
import subprocess
import time
import unittest
from pathlib import Path

import fork_server
from ranks_support import wait_for_children
from support import FAMILY, MODEL, PROGRAM, CommandLineTest, read_safetensors, wait_until, without

KIB = 1024
SETTINGS = ('OMP_WAIT_', 'GOMP_', 'PYTORCH_')


def limited_stack(soft, hard):
    return {'preexec_fn': lambda: resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))}


@unittest.skipIf(fork_server.LIBRARY is None, 'SPARSEREEL_FORK_SERVER_LIBRARY is not set')
class ForkedRuns(CommandLineTest):
    """Tests that forking a loaded process behaves like starting the program. The other tests rely on that."""
    def forked(self, *arguments):
        run = fork_server.run_forked([PROGRAM, *map(str, arguments)], self.folder, {})
        self.assertIsNotNone(run)
        return run

    def started(self, *arguments):
        return self.run_program(*arguments, env=dict(os.environ))  # a run with `env` is never forked

    def test_behave_like_started_runs(self):
        (self.folder / 'my.yaml').write_text('steps: 3\n')
        for arguments in (['--version'], ['generate', '--nonsense'], ['generate', '-m', MODEL, '--prompt-file', '-'], ['config', 'show', '-m', MODEL, '--config', 'my.yaml']):
            with self.subTest(arguments):
                forked, started = self.forked(*arguments), subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
                self.assertEqual(*((run.returncode, run.stdout, run.stderr) for run in (forked, started)))

    def test_make_the_same_video_and_measure_their_own_time(self):
        usual = ['generate', '-m', MODEL, '-p', 'a dog', '--steps', 2, '--device', 'cpu', '--quiet', '--json', *FAMILY.size]
        self.succeed(self.started(*usual, '-o', 'started.y4m'))
        before = time.monotonic()
        seconds = json.loads(self.succeed(self.forked(*usual, '-o', 'forked.y4m')).stdout)['seconds']
        self.assertLess(seconds['total'], time.monotonic() - before)
        self.assertGreater(seconds['start'], 0)
        self.assertEqual(*((self.folder / f'{name}.y4m').read_bytes() for name in ('started', 'forked')))

    def test_are_killed_if_they_take_too_long_without_affecting_the_next_run(self):
        command = [PROGRAM, 'generate', '-m', str(MODEL), '-p', 'a dog', '--steps', '1000', '--device', 'cpu', '--quiet', '-o', 'a.mp4']
        with self.assertRaises(subprocess.TimeoutExpired):
            fork_server.run_forked(command, self.folder, {'timeout': 0.5})
        self.assertEqual(self.forked('--version').returncode, 0)


class Surroundings(CommandLineTest):
    def environment_of_a_run(self, **given):
        """Starts a run that waits for its prompt on standard input. Returns the process's name and its environment variables, as /proc shows them."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
        process = subprocess.Popen([PROGRAM, 'generate', '-m', MODEL, '--prompt-file', '-', '-o', 'clip.mp4'], cwd=self.folder,
                                   stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment | given)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdin.close)
        home = Path('/proc') / str(process.pid)
        wait_until(lambda: len(os.listdir(home / 'task')) > 1)  # a second thread shows that main() has begun: it starts the thread that waits for signals
        entries = (home / 'environ').read_text().split('\0')
        return (home / 'comm').read_text().strip(), [entry for entry in entries if entry.startswith(SETTINGS)]

    def test_time_starts_with_the_program_not_with_the_shell(self):
        command = [PROGRAM, 'generate', '-m', MODEL, '-p', 'a dog', '-o', 'clip.safetensors', '--steps', '1', '--device', 'cpu', '--quiet', '--json']
        chosen = {'OMP_WAIT_POLICY': 'passive', 'PYTORCH_ALLOC_CONF': 'backend:native'}  # the program does not restart itself if both variables are set
        for given in ({}, chosen, {'SPARSEREEL_STARTED': '1:1'}):  # the last one has the value that a program sets when it restarts itself, but for another process
            before = time.monotonic()
            result = subprocess.run(['sh', '-c', 'sleep 3; exec "$@"', 'sh', *command], cwd=self.folder, env=os.environ | given, capture_output=True, text=True)
            taken = time.monotonic() - before - 3
            seconds = json.loads(self.succeed(result).stdout)['seconds']
            self.assertLess(seconds['start'], taken, given)
            self.assertLess(seconds['total'], taken, given)
            self.assertGreater(seconds['start'], 0, given)

    def test_children_do_not_inherit_the_start_time(self):
        process = subprocess.Popen([PROGRAM, 'generate', '-m', MODEL, '-p', 'a dog', '--gpus', '2', '--device', 'cpu', '-o', 'clip.safetensors', '--steps', '1000', '--quiet'],
                                   cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for child in wait_for_children(process, 1):
            self.assertNotIn('SPARSEREEL_STARTED=', (Path('/proc') / str(child) / 'environ').read_text())

    def test_threads_wait_passively_and_gpu_memory_grows_in_one_piece_unless_the_user_has_chosen(self):
        passive, expandable = 'OMP_WAIT_POLICY=passive', 'PYTORCH_ALLOC_CONF=expandable_segments:True'
        self.assertEqual(self.environment_of_a_run(), ('sparsereel', [passive, expandable]))
        for given, expected in (({'OMP_WAIT_POLICY': 'active'}, ['OMP_WAIT_POLICY=active', expandable]), ({'GOMP_SPINCOUNT': '9'}, ['GOMP_SPINCOUNT=9', expandable]),
                                ({'PYTORCH_ALLOC_CONF': 'backend:native'}, ['PYTORCH_ALLOC_CONF=backend:native', passive]),
                                ({'PYTORCH_CUDA_ALLOC_CONF': 'backend:native'}, ['PYTORCH_CUDA_ALLOC_CONF=backend:native', passive])):
            self.assertEqual(self.environment_of_a_run(**given), ('sparsereel', expected))

    def test_small_stack_is_raised_if_that_is_allowed(self):
        _, most = resource.getrlimit(resource.RLIMIT_STACK)
        self.succeed(self.generate('-o', 'clip.mp4', **limited_stack(96 * KIB, most)))
        self.fail_with(self.generate('-o', 'clip.mp4', **limited_stack(96 * KIB, 96 * KIB)), 2, 'stack limit', 'ulimit -s 8192')

    def test_videos_are_the_same_if_openmp_gives_fewer_threads(self):
        def made(threads, **environment):
            self.succeed(self.generate('-o', 'clip.safetensors', '--threads', threads, env=os.environ | environment))
            frames = read_safetensors(self.folder / 'clip.safetensors')['frames']
            (self.folder / 'clip.safetensors').unlink()
            return frames
        two, one = made(2), made(1)
        for environment in ({'OMP_DYNAMIC': 'true'}, {'OMP_MAX_ACTIVE_LEVELS': '0'}, {'OMP_THREAD_LIMIT': '2'}):
            self.assertEqual(made(2, **environment), two, environment)
        self.assertEqual(made(2, OMP_THREAD_LIMIT='1'), one)

    def test_closed_standard_descriptors_are_not_reused_for_files(self):
        self.succeed(self.generate('-o', 'whole.y4m'))
        (self.folder / 'set.txt').write_text('a dog\n' + 'a cat ' * 300 + '\n')  # the second prompt is too long, which causes a warning
        for closed in ([2], [0, 2], [1, 2], [0, 1, 2]):
            clip, folder = self.folder / f'{closed}.y4m', self.folder / f'{closed}'
            self.generate('-o', clip, **without(closed))
            self.assertEqual(clip.read_bytes(), (self.folder / 'whole.y4m').read_bytes(), closed)
            self.run_program('batch', 'set.txt', '-m', MODEL, *FAMILY.size, '--steps', 2, '--device', 'cpu', '--format', 'y4m', '-o', folder, **without(closed))
            lines = [json.loads(line) for line in (folder / 'manifest.0.jsonl').read_text().splitlines()]
            self.assertEqual([line['state'] for line in lines], ['done', 'done'])

    def test_refuses_a_deleted_working_directory(self):
        gone = self.folder / 'gone'
        gone.mkdir()
        result = self.generate('-o', self.folder / 'clip.mp4', cwd=gone, preexec_fn=gone.rmdir)
        self.fail_with(result, 2, 'working directory was deleted', 'change to a folder')


if __name__ == '__main__':
    unittest.main()
