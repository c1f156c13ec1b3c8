"""Tests `batch --gpus` on CPUs: several processes make the videos of a prompt set at the same time, each process alone or a team of processes for each video. In
some tests processes fail."""
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from ranks_support import SECONDS_TO_END, children_of, children_of_id, lives, wait_for_the_end_of
from support import FAMILY, MODEL, PROGRAM, CommandLineTest, floats, read_safetensors, wait_until


class Gpus(CommandLineTest):
    ROWS = 16

    def setUp(self):
        super().setUp()
        (self.folder / 'set.txt').write_text(''.join(f'thing {i}\n' for i in range(self.ROWS)))

    def arguments(self, folder, *more, steps=2):
        return ['batch', 'set.txt', '-o', folder, '-m', MODEL, '--size', '128x128', '--steps', str(steps), '--device', 'cpu', '--format', 'safetensors', '--quiet', *map(str, more)]

    def videos(self, folder):
        return {path.name: path.read_bytes() for path in (self.folder / folder).glob('*.safetensors')}

    def rows(self, folder):
        lines = [json.loads(line) for path in (self.folder / folder).glob('manifest.*.jsonl') for line in path.read_text().splitlines()]
        return sorted(line['row'] for line in lines if line['state'] == 'done')

    def start(self, folder, *more, steps=2, **options):
        process = subprocess.Popen([PROGRAM, *self.arguments(folder, *more, steps=steps)], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        self.addCleanup(process.kill)
        gpus = int(more[more.index('--gpus') + 1]) // (2 if '--gpus-per-video' in more else 1)
        wait_until(lambda: len(children_of(process)) >= gpus, process)
        return process

    def wait_for_rows(self, folder, count, process):
        wait_until(lambda: len(self.rows(folder)) >= count, process, seconds=120)

    def signal_a_gpu(self, folder, number, process):
        """Sends signal `number` to one worker process once a row is done. Returns what the run wrote to standard error, and the ids of all workers."""
        self.wait_for_rows(folder, 1, process)
        children = children_of(process)
        if not children:
            self.skipTest('on this busy machine the run ended before the test could interfere')
        os.kill(max(children), number)
        _, errors = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, errors)
        self.assertEqual(self.rows(folder), list(range(self.ROWS)))
        return errors, children

    def test_gpus_render_each_row_once_and_make_the_videos_of_one_worker(self):
        self.succeed(self.run_program(*self.arguments('one')))
        self.succeed(self.run_program(*self.arguments('four', '--gpus', 4)))
        self.assertEqual(self.videos('four'), self.videos('one'))
        self.assertEqual(self.rows('four'), list(range(self.ROWS)))
        again = self.succeed(self.run_program(*self.arguments('four', '--gpus', 4, '--json')))
        self.assertEqual(json.loads(again.stdout)['set']['skipped'], self.ROWS)

    def test_gpu_that_ends_gives_its_rows_to_the_others(self):
        errors, _ = self.signal_a_gpu('four', signal.SIGKILL, self.start('four', '--gpus', 4, steps=60))
        self.assertIn('was killed by signal 9: its rows went to the other processes', errors)
        self.succeed(self.run_program(*self.arguments('one', steps=60)))
        self.assertEqual(self.videos('four'), self.videos('one'))

    def test_gpu_that_stops_answering_gives_its_rows_to_the_others(self):
        process = self.start('two', '--gpus', 2, steps=60, env={**os.environ, 'SPARSEREEL_GROUP_SECONDS': '5'})
        errors, children = self.signal_a_gpu('two', signal.SIGSTOP, process)
        self.assertIn('did not answer within 5 s: its rows went to the other processes', errors)
        self.assertFalse([child for child in children if lives(child)])

    def test_set_ends_with_one_error_if_its_folder_or_manifest_disappears(self):
        for number, (change, words) in enumerate(((lambda folder: folder.rename(self.folder / 'elsewhere'), 'was moved, removed or replaced'),
                                                  (lambda folder: (folder / 'manifest.1.jsonl').unlink(), 'manifest.1.jsonl: was moved, removed or replaced'),
                                                  (lambda folder: os.truncate(folder / 'manifest.1.jsonl', 0), 'manifest.1.jsonl: became shorter'))):
            folder = f'two-{number}'
            process = self.start(folder, '--gpus', 2, steps=60)
            manifest = self.folder / folder / 'manifest.1.jsonl'
            wait_until(lambda: manifest.exists() and manifest.stat().st_size, process, seconds=120)
            change(self.folder / folder)
            _, errors = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 1, errors)
            self.assertEqual((errors.count('error: '), errors.count('  remedy: ')), (1, 1), errors)
            self.assertIn(words, errors)

    def test_incomplete_line_of_a_killed_gpu_is_ignored(self):
        (self.folder / 'two').mkdir()
        (self.folder / 'two' / 'manifest.1.jsonl').write_text('{"row": 3, "rows": 16, "output"' + ' ' * 2000)
        self.succeed(self.run_program(*self.arguments('two', '--gpus', 2), timeout=120))
        self.assertEqual(self.rows('two'), list(range(self.ROWS)))

    def test_refuses_standard_input_that_is_too_long_or_unreadable(self):
        arguments = self.arguments('two', '--gpus', 2)
        arguments[1] = '-'
        process = subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdin.close)
        with self.assertRaises(BrokenPipeError):  # the program stops reading once its limit is reached, and ends
            for _ in range(160):
                process.stdin.write(b'x\n' * (1 << 19))
        errors = process.stderr.read().decode()
        self.assertEqual(process.wait(timeout=60), 2, errors)
        self.assertIn('standard input: is larger than 64 MiB', errors)
        process.stderr.close()
        folder = os.open(self.folder, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        self.fail_with(self.run_program(*arguments, stdin=folder), 2, 'standard input: cannot be read')

    def test_set_whose_gpus_all_end_says_so_and_continues_when_it_is_run_again(self):
        process = self.start('four', '--gpus', 4, steps=200)
        self.wait_for_rows('four', 1, process)
        for child in children_of(process):
            os.kill(child, signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn('no process is left', errors)
        self.succeed(self.run_program(*self.arguments('four', '--gpus', 4, steps=200)))
        self.assertEqual(self.rows('four'), list(range(self.ROWS)))

    def test_interrupt_ends_all_gpus(self):
        process = self.start('four', '--gpus', 4, steps=400)
        self.wait_for_rows('four', 1, process)
        children = children_of(process)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertLess(time.monotonic() - start, SECONDS_TO_END)
        self.assertFalse([child for child in children if lives(child)])

    def assert_videos_of_one(self, several, one='one'):
        for path in sorted((self.folder / one).glob('*.safetensors')):
            left, right = (floats(read_safetensors(each)['frames']) for each in (path, self.folder / several / path.name))
            self.assertLess(max(abs(a - b) for a, b in zip(left, right, strict=True)), 1e-4)

    def test_makes_each_video_on_two_gpus(self):
        (self.folder / 'set.txt').write_text(''.join(f'thing {i}\n' for i in range(5)))
        self.succeed(self.run_program(*self.arguments('one')))
        result = self.succeed(self.run_program(*self.arguments('teams', '--gpus', 4, '--gpus-per-video', 2)))
        self.assertEqual(result.stderr, '')
        self.assertEqual(self.rows('teams'), list(range(5)))
        self.assertEqual(len(list((self.folder / 'teams').glob('manifest.*.jsonl'))), 3)  # one of each team, and one of the process that leads them
        self.assert_videos_of_one('teams')

    def test_row_that_fails_on_a_group_of_gpus_fails_alone(self):
        one, wrong, other = self.three_models()
        process = self.start_team(f'prompt,model\na,{one}\nb,{wrong}\nc,{other}\n')
        errors = self.end_of_team(process, 1)
        self.assertIn('set.csv:3', errors)
        self.assertIn('1 row failed', errors)
        self.assertNotIn('its rows went', errors)
        self.assertEqual(self.rows('team'), [0, 2])

    def start_team(self, text, *more, program=PROGRAM, **options):
        """Starts `batch` on a prompt set with one team of two ranks."""
        (self.folder / 'set.csv').write_text(text)
        arguments = self.arguments('team', '--gpus', 2, '--gpus-per-video', 2, *more)
        arguments[1] = 'set.csv'
        process = subprocess.Popen([program, *arguments], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        self.addCleanup(process.kill)
        return process

    def follower_of(self, process):
        followers = wait_until(lambda: [follower for gpu in children_of(process) for follower in children_of_id(gpu)], process)
        self.assertTrue(followers, 'no follower')
        return followers[0]

    def end_of_team(self, process, code):
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, errors)
        return errors

    def test_rank_that_runs_out_of_memory_fails_only_its_row(self):
        process = self.start_team('prompt,size,steps\na,64x64,2\nb,512x512,40\nc,64x64,2\n')
        self.wait_for_rows('team', 1, process)
        follower = self.follower_of(process)
        pages = int(Path(f'/proc/{follower}/statm').read_text().split()[0])
        stacks = 16 << 20  # leave room for stacks, because a stack that cannot grow ends the process by a signal; the large row needs far more memory than this
        resource.prlimit(follower, resource.RLIMIT_AS, (pages * resource.getpagesize() + stacks,) * 2)
        errors = self.end_of_team(process, 1)
        self.assertRegex(errors, r'set.csv:3: rank 1 \(cpu\): (.*memory|could not create a primitive)')  # oneDNN says "could not create a primitive" if memory runs out
        self.assertIn('1 row failed', errors)
        self.assertNotIn('its rows went', errors)
        self.assertEqual(self.rows('team'), [0, 2])

    def test_row_whose_model_cannot_be_loaded_fails_alone(self):
        model = self.copy_of_the_model()
        weights = model / 'vae' / 'diffusion_pytorch_model.safetensors'
        name = FAMILY.decoders_last
        weights.write_bytes(weights.read_bytes().replace(name.encode(), name[:-1].encode() + b'x'))  # misspells a tensor's name, which the program notices only when it loads the tensors
        process = self.start_team(f'prompt,model\na,{MODEL}\nb,{model}\nc,{MODEL}\n')
        errors = self.end_of_team(process, 1)
        self.assertIn('set.csv:3', errors)
        self.assertIn('1 row failed', errors)
        self.assertNotIn('its rows went', errors)
        self.assertIn('"failed"', (self.folder / 'team' / 'manifest.1.jsonl').read_text())  # rank 0 wrote this line before the other ranks read the manifests, so all ranks skip the row
        self.assertEqual(self.rows('team'), [0, 2])

    def test_row_of_another_device_fails_alone(self):
        process = self.start_team('prompt,device\na,\nb,cuda:63\nc,\n')
        errors = self.end_of_team(process, 1)
        self.assertRegex(errors, 'set.csv:3.* cuda:63')
        self.assertEqual(self.rows('team'), [0, 2])

    def three_models(self):
        """Returns three models. The frames of the second model are NaN, which the program notices only after decoding."""
        return MODEL, self.model_whose_videos_are(math.nan), shutil.copytree(MODEL, self.folder / 'other')

    def test_group_ends_if_its_other_ranks_cannot_be_restarted(self):
        one, wrong, other = self.three_models()
        program = shutil.copy(PROGRAM, self.folder / 'program')
        process = self.start_team(f'prompt,model,steps\na,{one},40\nb,{wrong},2\nc,{other},2\n', program=program)
        self.follower_of(process)
        os.chmod(program, 0)
        errors = self.end_of_team(process, 1)
        self.assertIn('rank 1 (cpu) could not be started: Permission denied', errors)
        self.assertIn('no process is left', errors)
        self.assertEqual(self.rows('team'), [0])

    def test_group_with_a_killed_rank_gives_its_row_to_the_others(self):
        process = self.start('teams', '--gpus', 4, '--gpus-per-video', 2, steps=60)
        self.wait_for_rows('teams', 1, process)
        followers = [child for gpu in children_of(process) for child in children_of_id(gpu)]
        if not followers:
            self.skipTest('on this busy machine the run ended before the test could interfere')
        os.kill(max(followers), signal.SIGKILL)
        _, errors = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, errors)
        self.assertRegex(errors, r'rank 1 \(cpu\) was killed by signal 9.*: its rows went to the other processes')
        self.assertEqual(self.rows('teams'), list(range(self.ROWS)))

    def test_interrupt_ends_all_gpus_of_all_videos(self):
        process = self.start('teams', '--gpus', 4, '--gpus-per-video', 2, steps=400)
        self.wait_for_rows('teams', 1, process)
        gpus = children_of(process)
        children = [*gpus, *(child for gpu in gpus for child in children_of_id(gpu))]
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertLess(time.monotonic() - start, SECONDS_TO_END)
        wait_for_the_end_of(children)

    def test_refuses_numbers_of_gpus_that_do_not_divide_into_videos(self):
        for more in (('--gpus', 4, '--gpus-per-video', 3), ('--gpus-per-video', 2), ('--gpus', 2, '--gpus-per-video', 0)):
            self.fail_with(self.run_program(*self.arguments('teams', *more)), 2, '--gpus-per-video')

    def test_bad_row_fails_alone(self):
        (self.folder / 'set.csv').write_text('prompt,steps\n' + ''.join(f'thing {i},{100000 if i == 5 else 2}\n' for i in range(8)))
        arguments = self.arguments('four', '--gpus', 2)
        arguments[1] = 'set.csv'
        result = self.run_program(*arguments)
        self.assertEqual(result.returncode, 1)
        self.assertIn('set.csv:7', result.stderr)
        self.assertEqual(self.rows('four'), [0, 1, 2, 3, 4, 6, 7])


if __name__ == '__main__':
    unittest.main()
