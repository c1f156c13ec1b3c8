"""Tests `generate --gpus` on CPUs: several processes make a video together. In some tests processes fail."""
import json
import os
import random
import re
import signal
import subprocess
import time
import unittest
from pathlib import Path

from ranks_support import SECONDS_TO_END, children_of, lives, wait_for_children, wait_for_the_end_of
from support import MODEL, PROGRAM, PROMPT, ROOT, CommandLineTest, floats, limited, read_safetensors, wait_until, without

FULL = 'SPARSEREEL_FULL_TESTS' in os.environ


class SharedVideo(CommandLineTest):
    def assert_same_video(self, name, other):
        """Compares two videos. They may differ by rounding: ranks multiply fewer rows at a time than one process does, so sums have another order."""
        one, several = (floats(read_safetensors(self.folder / each)['frames']) for each in (name, other))
        self.assertEqual(len(one), len(several))
        self.assertLess(max(abs(a - b) for a, b in zip(one, several)), 1e-4)


class Ranks(SharedVideo):
    def start(self, *arguments, steps=1000, **options):
        process = subprocess.Popen([PROGRAM, 'generate', '-m', MODEL, '-p', PROMPT, '--steps', str(steps), '--device', 'cpu', '-o', 'clip.safetensors', '--quiet', *map(str, arguments)],
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        self.addCleanup(process.kill)
        return process

    def wait_for_the_first_step(self, process, count):
        """Waits until all ranks of a run with --checkpoint-every 1 have made a step together. Returns the run's children."""
        children = wait_for_children(process, count)
        self.assertTrue(wait_until(lambda: list(self.folder.glob('*.checkpoint.safetensors')), process))
        return children

    def end_of(self, process, children):
        """Checks that the run ends within SECONDS_TO_END and that none of its children lives on. Returns the exit code, stdout and stderr."""
        start = time.monotonic()
        output, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - start, SECONDS_TO_END)
        wait_for_the_end_of(children)
        return process.returncode, output, errors

    def test_several_ranks_make_the_video_of_one_process(self):
        self.succeed(self.generate('-o', 'one.safetensors'))
        for count in (2, 4):
            result = self.succeed(self.generate('-o', 'several.safetensors', '--gpus', count))
            self.assertEqual(result.stderr, '')
            self.assert_same_video('one.safetensors', 'several.safetensors')

    def test_numbers_of_ranks_that_do_not_divide_heads_and_rows_make_the_same_video(self):
        tiny = ['generate', '--random-weights', ROOT / 'configs' / 'tiny.yaml', '-p', PROMPT, '--size', '64x96', '--frames', 9, '--steps', 2, '--attention', 'full', '--device', 'cpu', '--quiet']
        self.succeed(self.run_program(*tiny, '-o', 'one.safetensors'))
        for count in (3, *([4, 6, 8] if FULL else [])):
            self.succeed(self.run_program(*tiny, '-o', 'several.safetensors', '--gpus', count))
            self.assert_same_video('one.safetensors', 'several.safetensors')

    def test_group_of_one_rank_makes_the_same_video(self):
        self.succeed(self.generate('-o', 'one.safetensors'))
        self.succeed(self.generate('-o', 'forced.safetensors', env={**os.environ, 'SPARSEREEL_GROUP': 'of-one'}))
        self.assertEqual(*((self.folder / name).read_bytes() for name in ('one.safetensors', 'forced.safetensors')))

    def test_one_gpu_starts_no_process(self):
        process = self.start('--gpus', 1, steps=100)
        self.assertEqual(wait_until(lambda: children_of(process), process), {})
        self.assertEqual(process.communicate()[1], '')
        self.assertEqual(process.returncode, 0)

    def test_several_videos_and_a_random_seed_are_the_same_on_all_ranks(self):
        report = self.report('--gpus', 2, '--seed', 'random', '--batch-count', 2, '-o', 'clip.safetensors')
        self.assertEqual(len(report['videos']), 2)
        seed = report['videos'][0]['recipe']['seed']
        self.succeed(self.generate('--seed', seed, '-o', 'again.safetensors'))
        self.assert_same_video('clip-1.safetensors', 'again.safetensors')

    def test_ranks_share_a_prompt_from_standard_input(self):
        self.succeed(self.run_program('generate', '-m', MODEL, '--prompt-file', '-', '--steps', 2, '--device', 'cpu', '--gpus', 2, '-o', 'clip.safetensors', '--quiet', input=PROMPT))

    def test_killed_rank_ends_all_with_one_message(self):
        moments = random.Random(42)
        for attempt in range(50 if FULL else 3):
            process = self.start('--gpus', 4, '--size', '256x256', '--frames', 17)
            children = wait_for_children(process, 3)
            time.sleep(moments.uniform(0, 2) if attempt > 0 else 0)  # a random delay, so that ranks are killed at any moment
            os.kill(moments.choice(sorted(children)), signal.SIGKILL)
            code, output, errors = self.end_of(process, children)
            self.assertEqual((code, output), (1, ''), errors)
            self.assertRegex(errors, r'\Aerror: rank [123] \(cpu\) was killed by signal 9\n  remedy: .+\n\Z')
            self.assertEqual(self.names(), [])

    def test_killed_rank_keeps_the_checkpoint_and_any_number_of_ranks_resumes(self):
        arguments = ('--checkpoint-every', 1, '--seed', 7, '--size', '256x256', '--frames', 17)
        process = self.start('--gpus', 2, *arguments, steps=40)
        checkpoint = self.folder / 'clip.safetensors.checkpoint.safetensors'
        children = wait_for_children(process, 1)
        wait_until(checkpoint.exists, process)
        os.kill(max(children), signal.SIGKILL)
        code, _, errors = self.end_of(process, children)
        if code == 0:
            self.skipTest('on this busy machine the run ended before the test could interfere')
        self.assertIn('it goes on from step', errors)
        self.assertTrue(checkpoint.exists())
        again = self.start('--gpus', 4, *arguments, '--json', steps=40)
        report = json.loads(again.communicate(timeout=120)[0])
        self.assertGreater(report['resumed_at_step'], 0)
        self.assertFalse(checkpoint.exists())
        self.succeed(self.generate('-o', 'whole.safetensors', *arguments, '--steps', 40))
        self.assert_same_video('whole.safetensors', 'clip.safetensors')

    def kill_after_the_latents(self, *arguments):
        """Starts a run with two ranks, and kills rank 1 once the latents are written, while the video is decoded."""
        process = self.start('--gpus', 2, '--size', '512x512', '--frames', 17, *arguments, steps=1)
        child, = wait_for_children(process, 1)
        wait_until(lambda: list(self.folder.glob('*.latents.safetensors')), process)
        if not lives(child) or process.poll() is not None:
            self.skipTest('on this busy machine the run ended before the test could interfere')
        os.kill(child, signal.SIGKILL)
        return process, child

    def test_rank_killed_while_all_decode_ends_them_and_keeps_the_latents(self):
        process, child = self.kill_after_the_latents()
        code, _, errors = self.end_of(process, [child])
        self.assertEqual(code, 1, errors)
        self.assertRegex(errors, r'\Aerror: rank 1 \(cpu\) was killed by signal 9\n  remedy: .+the latents are kept')
        latents, = self.names()
        self.succeed(self.run_program('decode', latents, '-m', MODEL, '-o', 'clip.safetensors', '--device', 'cpu', '--quiet'))

    def test_rank_killed_while_rank_0_decodes_in_tiles_does_not_stop_the_video(self):
        process, _ = self.kill_after_the_latents('--vae-tiling', 'on', '--size', '256x256')
        _, errors = process.communicate(timeout=120)
        self.assertEqual((process.returncode, errors), (0, ''))
        self.assertEqual(self.names(), ['clip.safetensors'])

    def test_interrupt_in_the_terminal_ends_all_ranks(self):
        process = self.start('--gpus', 2, '--size', '256x256', '--frames', 17, '--checkpoint-every', 1, start_new_session=True)
        children = self.wait_for_the_first_step(process, 1)
        os.killpg(process.pid, signal.SIGINT)
        code, _, errors = self.end_of(process, children)
        self.assertEqual(code, 130, errors)
        self.assertIn('interrupted', errors)

    def test_interrupted_ranks_keep_their_steps_and_any_number_resumes(self):
        given = ('--seed', 7, '--size', '256x256', '--frames', 17, '--cache', 'forecast:0.5')
        process, terminal = self.start_program('generate', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '--gpus', 2, '-o', 'clip.safetensors', *given, '--steps', 20)
        self.assertIn('s/it', self.read_until(terminal, 's/it'))
        process.send_signal(signal.SIGINT)
        errors = self.read_until(terminal, None)
        self.assertEqual(process.wait(timeout=60), 130, errors)
        said = ' '.join(errors.split())  # messages are wrapped for the terminal, so a line break may be anywhere
        self.assertIn('it goes on from step', said)
        step = int(re.search('it goes on from step ([0-9]+)', said).group(1))
        report = self.report('-o', 'clip.safetensors', *given, '--steps', 20)
        self.assertEqual(report['resumed_at_step'], step)
        self.assertEqual(self.names(), ['clip.safetensors'])
        self.succeed(self.generate('-o', 'whole.safetensors', *given, '--steps', 20))
        self.assert_same_video('whole.safetensors', 'clip.safetensors')

    def test_killed_rank_0_leaves_no_process(self):
        process = self.start('--gpus', 4, '--checkpoint-every', 1)
        children = self.wait_for_the_first_step(process, 3)
        process.kill()
        self.end_of(process, children)
        self.assertEqual(process.returncode, -signal.SIGKILL)

    def test_stopped_rank_is_named_after_the_time_limit(self):
        process = self.start('--gpus', 2, env={**os.environ, 'SPARSEREEL_START_SECONDS': '2'})
        child, = wait_for_children(process, 1)
        os.kill(child, signal.SIGSTOP)
        code, _, errors = self.end_of(process, [child])
        self.assertEqual(code, 1)
        self.assertIn('error: rank 1', errors)
        self.assertIn('within 2 s', errors)

    def test_full_disk_ends_all_ranks_with_one_error(self):
        process = self.start('--gpus', 2, steps=2, **limited(1000))
        children = wait_for_children(process, 1)
        code, _, errors = self.end_of(process, children)
        self.assertEqual(code, 1, errors)
        self.assertEqual(errors.count('error: '), 1)
        self.assertEqual(errors.count('  remedy: '), 1)
        self.assertFalse((self.folder / 'clip.safetensors').exists())

    def test_messages_of_nccl_go_to_standard_error_and_truncate_no_file(self):
        with open(self.folder / 'errors.txt', 'w+') as errors:
            errors.write('kept\n')
            errors.flush()
            command = [PROGRAM, 'generate', '-m', MODEL, '-p', PROMPT, '--steps', '1000', '--device', 'cpu', '-o', 'clip.safetensors', '--quiet', '--gpus', '2']
            process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=errors, env={**os.environ, 'NCCL_DEBUG': 'WARN'})
            self.addCleanup(process.kill)
            child, = wait_for_children(process, 1)
            named = wait_until(lambda: re.search(rb'NCCL_DEBUG_FILE=/proc/self/fd/(\d+)', Path(f'/proc/{child}/environ').read_bytes()))  # matches only after exec(), which sets the rank's environment
            with open(f'/proc/{child}/fd/{int(named[1])}', 'w') as words:  # NCCL opens its log file in this way
                words.write('a word of rank 1\n')
            written = self.folder / 'errors.txt'
            wait_until(lambda: 'a word of rank 1' in written.read_text())
            self.assertTrue(written.read_text().startswith('kept\n'), written.read_text())
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=60), 130)

    def test_closed_standard_descriptors_do_not_matter(self):
        self.succeed(self.generate('-o', 'clip.y4m', '--gpus', 2))
        whole = (self.folder / 'clip.y4m').read_bytes()
        for closed in ([2], [0, 2], [1, 2], [0, 1, 2]):
            (self.folder / 'clip.y4m').unlink()
            self.generate('-o', 'clip.y4m', '--gpus', 2, **without(closed))
            self.assertEqual((self.folder / 'clip.y4m').read_bytes(), whole, closed)

    def test_refuses_impossible_numbers_of_gpus(self):
        self.fail_with(self.generate('--gpus', 0), 2, '--gpus 0')
        self.fail_with(self.generate('--gpus', 65), 2, '--gpus 65')
        self.fail_with(self.generate('--gpus', 2, '--device', 'cuda:0'), 2, '--device cuda:0', 'CUDA_VISIBLE_DEVICES')
        self.fail_with(self.generate('--gpus', 2, env={**os.environ, 'RANK': '0', 'WORLD_SIZE': '2'}), 2, '--gpus 2', 'torchrun')


class LaunchedRanks(SharedVideo):
    """Tests ranks that a launcher starts, by setting srun's variables. With torchrun, another process listens at the address where the ranks meet."""

    def start(self, rank, size, name='clip.safetensors', given=(), **more):
        variables = {'SLURM_PROCID': rank, 'SLURM_STEP_NUM_TASKS': size, 'SLURM_STEP_NODELIST': '127.0.0.1', 'SLURM_JOB_ID': os.getpid(), **more}
        process = subprocess.Popen([PROGRAM, 'generate', '-m', MODEL, '-p', PROMPT, '--steps', '2', '--device', 'cpu', '-o', name, '--quiet', *map(str, given)], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **{key: str(value) for key, value in variables.items()}})
        self.addCleanup(process.kill)
        return process

    def test_make_one_video_together_and_only_rank_0_prints(self):
        ranks = [self.start(rank, 4) for rank in range(4)]
        outputs = [rank.communicate(timeout=120) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0, 0, 0], outputs)
        self.assertIn('clip.safetensors: ', outputs[0][0])
        self.assertEqual(outputs[1:], [('', '')] * 3)
        self.succeed(self.run_program('generate', '-m', MODEL, '-p', PROMPT, '--steps', 2, '--device', 'cpu', '-o', 'one.safetensors', '--quiet'))
        self.assert_same_video('clip.safetensors', 'one.safetensors')

    def test_are_canceled_together_by_an_interrupt(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            given = ('--steps', 1000, '--size', '256x256', '--frames', 17, '--checkpoint-every', 1)
            ranks = [self.start(rank, 2, given=given) for rank in range(2)]
            self.assertTrue(wait_until(lambda: list(self.folder.glob('*.checkpoint.safetensors')), ranks[0]))
            for rank in reversed(ranks):
                rank.send_signal(number)
            outputs = [rank.communicate(timeout=60) for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [130, 130], outputs)
            self.assertIn('it goes on from step', outputs[0][1])
            self.assertEqual(outputs[1], ('', ''))
            for left in self.folder.glob('*.checkpoint.safetensors'):
                left.unlink()

    def test_refuse_different_command_lines(self):
        ranks = [self.start(rank, 2, given=('--seed', 3 + rank)) for rank in range(2)]
        outputs = [rank.communicate(timeout=60) for rank in ranks]
        self.assertEqual(ranks[0].returncode, 2, outputs)
        self.assertIn('error: rank 1', outputs[0][1])
        self.assertIn('seed', outputs[0][1])
        self.assertIn('--gpus 1', outputs[0][1])
        self.assertEqual(self.names(), [])

    def test_make_a_video_each_with_one_gpu(self):
        ranks = [self.start(rank, 2, name=f'{rank}.safetensors', given=('--gpus', 1)) for rank in range(2)]
        outputs = [rank.communicate(timeout=120) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], outputs)
        self.assertEqual(self.names(), ['0.safetensors', '1.safetensors'])
        self.assertIn('1.safetensors: ', outputs[1][0])

    def test_refuse_ranks_with_another_secret_or_another_count(self):
        ranks = [self.start(rank, 2, SPARSEREEL_START_SECONDS=8, SPARSEREEL_JOB_SECRET=f'the secret of rank {rank}') for rank in range(2)]
        outputs = [rank.communicate(timeout=60) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [1, 1], outputs)
        self.assertRegex(outputs[0][1], 'error: rank 1 did not start within 8 s; connections with another secret: [0-9]+')
        self.assertIn("does not know this job's secret", outputs[1][1])
        ranks = [self.start(rank, 2 + rank, SPARSEREEL_JOB_SECRET='that of all ranks') for rank in range(2)]
        outputs = [rank.communicate(timeout=90) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [2, 1], outputs)
        self.assertIn('error: rank 1 was started as one of 3 ranks, but rank 0 as one of 2', outputs[0][1])
        self.assertIn('refuses this rank', outputs[1][1])
        self.assertEqual(self.names(), [])

    def test_refuse_an_impossible_meeting_place_in_one_line(self):
        for given, words in (({'MASTER_PORT': 70000}, 'MASTER_PORT=70000'), ({'MASTER_ADDR': 'node7'}, 'SPARSEREEL_JOB_SECRET'),
                             ({'MASTER_ADDR': 'no-such-host.invalid', 'SPARSEREEL_JOB_SECRET': 'that of all ranks'}, 'host no-such-host.invalid was not found')):
            for more in ({}, {'TORCHELASTIC_USE_AGENT_STORE': 'True', 'MASTER_ADDR': '127.0.0.1', **given}):
                rank = self.start(0, 2, **{**given, **more})
                _, errors = rank.communicate(timeout=60)
                self.assertIn(rank.returncode, (1, 2))
                self.assertRegex(errors, rf'\Aerror: .*{words}.*\n  remedy: .*\n\Z')

    def test_name_a_rank_that_never_starts(self):
        rank = self.start(0, 2, SPARSEREEL_START_SECONDS=2)
        _, errors = rank.communicate(timeout=60)
        self.assertEqual(rank.returncode, 1)
        self.assertIn('error: rank 1 did not start within 2 s', errors)

    def test_say_that_rank_0_is_missing(self):
        rank = self.start(1, 2, SPARSEREEL_START_SECONDS=2)
        _, errors = rank.communicate(timeout=60)
        self.assertEqual(rank.returncode, 1)
        self.assertIn('the ranks\' meeting place cannot be reached', errors)


class BenchOverRanks(CommandLineTest):
    SMALL = ['--device', 'cpu', '--random-weights', ROOT / 'configs' / 'tiny.yaml', '--size', '64x64', '--frames', 9, '--steps', 2, '--quiet']

    def bench(self, *arguments, **options):
        return self.run_program('bench', 'pipeline', *self.SMALL, *arguments, **options)

    def test_compares_numbers_of_gpus(self):
        self.succeed(self.bench('--gpus', '1,2,3', '--modes', 'full,quantized,sparse', '--topk', '0.5', '--repetitions', 2, '--report', 'r.json'))
        report = json.loads((self.folder / 'r.json').read_text())
        rows = report['rows']
        self.assertEqual([(row['gpus'], row['mode'], row['topk']) for row in rows],
                         [(count, mode, topk) for count in (1, 2, 3) for mode, topk in (('full', None), ('quantized', None), ('sparse', 0.5))])
        for row in rows:
            self.assertEqual(len(row['steps_ms']), 4)
            for key in ('ms', 'speedup', 'decode_seconds', 'video_seconds'):
                self.assertGreater(row[key], 0, key)
            if row['gpus'] == 1:
                self.assertEqual([row[key] for key in ('exchange_ms', 'exchange_percent', 'scaling', 'decode_scaling')], [None] * 4)
            else:
                for key in ('exchange_ms', 'exchange_percent', 'scaling', 'decode_scaling'):
                    self.assertGreater(row[key], 0, key)
                self.assertLess(row['exchange_percent'], 100)
            if row['mode'] == 'full' and row['gpus'] > 1:
                self.assertLess(row['rel_l1'], 1e-4)
                self.assertGreater(row['psnr'], 80)
        self.assertIn('heads of 3 ranks', rows[6]['kernel'])
        self.assertEqual(self.succeed(self.run_program('bench', 'plot', 'r.json', '-o', 'r.png')).stdout, 'r.png: 9 bars\n')

    def test_compares_a_group_of_one_with_no_group(self):
        out = self.succeed(self.bench('--gpus', '1', '--modes', 'full', '--json', env={**os.environ, 'SPARSEREEL_GROUP': 'of-one'})).stdout
        alone, grouped = json.loads(out)['rows']
        self.assertEqual((alone['grouped'], grouped['grouped']), (False, True))
        self.assertEqual((alone['exchange_ms'], grouped['rel_l1']), (None, 0))
        self.assertGreater(grouped['exchange_ms'], 0)
        self.assertGreater(grouped['scaling'], 0)

    def test_averages_whole_runs_with_a_cache_and_compares_rows_before_full_attention(self):
        self.succeed(self.bench('--gpus', '1,2', '--modes', 'sparse,full', '--topk', '0.5', '--cache', '0,steps:2', '--steps', 6, '--repetitions', 1, '--report', 'r.json'))
        rows = json.loads((self.folder / 'r.json').read_text())['rows']
        self.assertEqual([(row['gpus'], row['mode'], row['cache']) for row in rows],
                         [(count, mode, cache) for count in (1, 2) for mode in ('sparse', 'full') for cache in (None, 'steps:2')])
        for row in rows:
            self.assertEqual(len(row['steps_ms']), 6)
            if row['cache']:
                self.assertAlmostEqual(row['ms'], sum(row['steps_ms']) / 6, places=6)
                if row['gpus'] > 1:
                    self.assertAlmostEqual(row['exchange_percent'], 100 * row['exchange_ms'] / row['ms'], places=6)
            is_reference = (row['gpus'], row['mode'], row['cache']) == (1, 'full', None)
            self.assertEqual([row[key] is None for key in ('rel_l1', 'psnr')], [is_reference] * 2, row)

    def test_profile_has_a_row_of_its_own_and_does_not_change_others(self):
        model = ['-m', MODEL, '--device', 'cpu', '--steps', 2, '--quiet']
        self.succeed(self.run_program('tune', *model, '-p', PROMPT, '--samples', 1, '--videos', 0, '-o', 'p.yaml'))
        bench = ['bench', 'pipeline', *model, '--size', '256x256', '--frames', 17, '--gpus', '1,2', '--modes', 'sparse', '--topk', '0.3', '--repetitions', 1, '--warmup', 0, '--no-decode', '--json']
        alone, beside = (json.loads(self.succeed(self.run_program(*bench, *more)).stdout)['rows'] for more in ([], ['--profile', 'p.yaml']))
        self.assertEqual([(row['gpus'], row['profile']) for row in beside], [(1, None), (1, 'p.yaml'), (2, None), (2, 'p.yaml')])
        self.assertGreater(alone[0]['sparsity'], 0.5)
        self.assertEqual([row['sparsity'] for row in beside if row['profile'] is None], [row['sparsity'] for row in alone])

    def test_prints_a_table_of_steps_without_decoding(self):
        out = self.succeed(self.bench('--gpus', '1,2', '--modes', 'full', '--no-decode')).stdout.splitlines()
        self.assertIn('random weights of tiny.yaml', out[0])
        self.assertRegex(out[2], r'\| GPUs \| ms a step \|.*\| exchange ms \| exchange % \|')
        self.assertNotIn('decode', out[2])
        self.assertEqual(len([line for line in out if line.startswith('|')]), 4, out)  # the table has a header, a separator line and two rows

    def test_dry_run_adds_the_requested_counts(self):
        rows = json.loads(self.succeed(self.bench('--gpus', '1,3', '--dry-run', '100,340', '--json')).stdout)['rows']
        self.assertEqual([row['gpus'] for row in rows], [2, 3, 4, 8])

    def test_refuses_impossible_counts_at_once(self):
        self.fail_with(self.bench('--gpus', '1,two'), 2, '--gpus two', '1,2,4')
        self.fail_with(self.bench('--gpus', '0'), 2, '--gpus 0')
        self.fail_with(self.bench('--gpus', '1,20'), 2, '20 ranks', '4 attention heads')
        self.fail_with(self.bench('--gpus', '1,2', env={**os.environ, 'RANK': '0', 'WORLD_SIZE': '2'}), 2, '--gpus', 'torchrun')

    def test_killed_rank_ends_the_run(self):
        command = [PROGRAM, 'bench', 'pipeline', *map(str, self.SMALL), '--steps', '1000', '--modes', 'full', '--gpus', '2']
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        os.kill(max(wait_for_children(process, 1)), signal.SIGKILL)
        _, errors = process.communicate(timeout=SECONDS_TO_END)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(errors, r'\Aerror: rank 1 \(cpu\) was killed by signal 9\n  remedy: .+\n\Z')


if __name__ == '__main__':
    unittest.main()
