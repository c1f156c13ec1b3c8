"""Tests `tune` and `--profile`: the search keeps its bounds, ends within its budget and resumes after an interruption; its profile is read, checked and applied."""
import ctypes
import json
import os
import re
import signal
import struct
import subprocess
import time
import unittest

from support import MODEL, PROGRAM, PROMPT, ROOT, CommandLineTest, needs_gnuplot, wait_until

# 192 x 192 pixels make 432 video tokens, which are 7 blocks, so some blocks can be left out.
SIZE = ['--size', '192x192', '--device', 'cpu']


class Tune(CommandLineTest):
    def tune(self, *arguments, model=MODEL):
        usual = self.unless(arguments, '--steps', 3, '--budget', '60s', '--samples', 2)
        size = SIZE if '--size' not in arguments else SIZE[2:]
        return self.run_program('tune', '-m', model, *size, *usual, *arguments)

    def tuned(self, *arguments, **options):
        return json.loads(self.succeed(self.tune('--json', '--quiet', *arguments, **options)).stdout)

    def prompts(self):
        (self.folder / 'prompts.txt').write_text(f'# two\n{PROMPT}\n\na green star\n')
        return 'prompts.txt'

    @needs_gnuplot
    def test_writes_a_profile_that_generate_uses(self):
        report = self.tuned(self.prompts(), '-o', 'p.yaml', '--videos', 0, '--budget', '5m', '--l1', 0.6, '--l2', 0.7, '--heat-map', 'p.png')
        self.assertEqual(self.names(), ['p.png', 'p.yaml', 'prompts.txt'])
        self.assertEqual((self.folder / 'p.png').read_bytes()[:4], b'\x89PNG')
        tune = report['tune']
        self.assertTrue(tune['complete'])
        self.assertEqual((tune['samples'], tune['videos']), (4, 0))
        self.assertGreaterEqual(tune['sparsity'], tune['untuned_sparsity'])
        for row in tune['head_relative_l1']:
            self.assertLessEqual(max(row), 0.7)
        made = self.report('-o', 'a.mp4', *SIZE, '--steps', 3, '--profile', 'p.yaml')
        self.assertEqual(made['recipe']['profile'], 'p.yaml')
        self.assertEqual(len(made['recipe']['profile_sha256']), 64)
        self.assertEqual(made['warnings'], [])
        self.assertAlmostEqual(made['attention']['sparsity'], tune['sparsity'], delta=0.1)
        other = self.succeed(self.generate('-o', 'b.mp4', '--steps', 1, '--profile', 'p.yaml'))
        self.assertIn('was made with other settings (width 192 instead of 64', other.stderr)

    def test_says_why_a_heat_map_has_no_heads(self):
        result = self.tune('-p', PROMPT, '-o', 'p.yaml', '--videos', 1, '--min-psnr', 90, '--topk', 0.5, '--heat-map', 'p.png', '--json', '--quiet')
        warning = next(each for each in json.loads(result.stdout)['warnings'] if each.startswith('--heat-map'))
        self.assertRegex(warning, r'^--heat-map draws nothing, because heads get no blocks of their own: \w.*\w$')
        self.assertNotIn('p.png', self.names())

    def bounds_and_worst(self, file):
        """Returns the bounds [l1, l2] that a profile states, and the largest error that it gives for a head."""
        text = (self.folder / file).read_text()
        bounds = [float(number) for number in re.search(r'bounds: {l1: ([0-9.]+), l2: ([0-9.]+)}', text).groups()]
        return bounds, max(float(number) for number in re.findall(r'error: ([0-9.]+)', text.split('layer 0')[1]))

    def test_keeps_the_requested_bounds(self):
        usual = ['-p', PROMPT, '--videos', 0]
        self.succeed(self.tune(*usual, '-o', 'p.yaml', '--l1', 0.02))  # with the settings before tuning, errors are larger than these bounds
        bounds, worst = self.bounds_and_worst('p.yaml')
        self.assertEqual(bounds, [0.02, 0.065])
        self.assertLessEqual(worst, 0.065)
        self.succeed(self.tune(*usual, '-o', 'p.yaml', '--l2', 0.03))
        self.assertEqual(self.bounds_and_worst('p.yaml')[0], [0.03, 0.03])
        self.assertLessEqual(self.bounds_and_worst('p.yaml')[1], 0.03)
        result = self.succeed(self.tune(*usual, '-o', 'free.yaml'))  # without bounds, the profile must be at least as fast as the settings before tuning
        bounds, worst = self.bounds_and_worst('free.yaml')
        self.assertGreater(worst, 0.065)
        self.assertGreaterEqual(bounds[0], worst)
        self.assertIn('settings within the bounds would be slower', result.stderr)

    def test_missed_profile_replaces_only_profiles(self):
        (self.folder / 'p.missed.yaml').write_text('mine: true\n')
        self.fail_with(self.tune('-p', PROMPT, '-o', 'p.yaml', '--min-psnr', 99), 2, 'p.missed.yaml', 'holds something other than a profile')
        self.fail_with(self.tune('-p', PROMPT, '-o', 'p.yaml', '--report', 'p.missed.yaml'), 2, '--report', 'same file')
        self.assertEqual(self.names(), ['p.missed.yaml'])
        self.assertEqual((self.folder / 'p.missed.yaml').read_text(), 'mine: true\n')

    def test_profile_records_what_replaces_dropped_blocks(self):
        usual = ['-p', PROMPT, '-o', 'p.yaml', '--videos', 0, '--steps', 1, '--samples', 1]
        for arguments, lines in ((['--dropped', 'none'], 'dropped: none\nselect: mass\n'),
                                 (['--dropped', 'mean', '--cell', 32], 'dropped: mean\nselect: error\ncell: 32\n'),
                                 (['--dropped', 'mean', '--select', 'mass', '--cell', 16], 'dropped: mean\nselect: mass\ncell: 16\n')):
            self.succeed(self.tune(*usual, *arguments))
            self.assertIn('\n' + lines, (self.folder / 'p.yaml').read_text())
        attention = self.report('-o', 'a.mp4', *SIZE, '--steps', 1, '--profile', 'p.yaml')['attention']
        self.assertEqual((attention['dropped'], attention['select'], attention['cell']), ('mean', 'mass', 16))
        for arguments in (['--dropped', 'mean'], ['--select', 'mass'], ['--cell', 16]):
            self.warn_with(self.generate('-o', 'a.mp4', *SIZE, '--steps', 1, '--profile', 'p.yaml', *arguments),
                           f'{arguments[0]} {arguments[1]} has no effect with --profile p.yaml, which has a policy for each head')
        given = self.report('-o', 'a.mp4', *SIZE, '--steps', 1, '--profile', 'p.yaml', '--topk', 0.4)
        self.assertEqual((given['recipe']['topk'], given['recipe'].get('profile'), given['warnings']), (0.4, None, []))
        self.fail_with(self.tune(*usual, '--dropped', 'none', '--select', 'error'), 2, 'exclude')
        result = self.succeed(self.tune(*usual, '--dropped', 'none', '--cell', 32))
        self.assertIn('warning: --cell 32 has no effect without means for dropped blocks\n', result.stderr)

    def test_old_profiles_without_means_use_the_published_method(self):
        self.succeed(self.tune('-p', PROMPT, '-o', 'p.yaml', '--videos', 0, '--steps', 1, '--samples', 1, '--dropped', 'none'))
        text = (self.folder / 'p.yaml').read_text()
        (self.folder / 'old.yaml').write_text(re.sub('dropped: none\nselect: mass\ncell: [0-9]+\n', '', text))
        self.assertNotIn('dropped', (self.folder / 'old.yaml').read_text())
        made = {name: self.report('-o', f'{name}.y4m', *SIZE, '--steps', 1, '--profile', f'{name}.yaml') for name in ('p', 'old')}
        self.assertEqual((made['old']['recipe']['dropped'], made['old']['recipe']['select']), ('none', 'mass'))
        self.assertEqual((self.folder / 'p.y4m').read_bytes(), (self.folder / 'old.y4m').read_bytes())

    def opens(self, path, *arguments):
        """Runs the program, which must succeed. Returns how often it opens the file at `path`."""
        opened, closed = 0x20, 0x10  # masks of inotify. Close events keep inotify from merging several open events into one
        libc = ctypes.CDLL(None)
        descriptor = libc.inotify_init()
        self.addCleanup(os.close, descriptor)
        self.assertGreaterEqual(libc.inotify_add_watch(descriptor, os.fsencode(path), opened | closed), 0)
        self.succeed(self.run_program(*arguments))
        return sum(mask & opened != 0 for _, mask, _, _ in struct.iter_unpack('iIII', os.read(descriptor, 1 << 16)))

    def test_set_reads_the_model_once_for_its_profile(self):
        model = self.copy_of_the_model()
        self.succeed(self.tune('-p', PROMPT, '-o', 'p.yaml', '--videos', 0, '--size', '64x64', '--steps', 1, '--samples', 1, model=model))
        counts = []
        for rows in (1, 5):
            (self.folder / 'set.txt').write_text('a\n' * rows)
            counts.append(self.opens(model / 'vae' / 'config.json', 'batch', 'set.txt', '-o', f'out{rows}', '-m', model, '--profile', 'p.yaml', '--steps', 1,
                                     '--frames', 5, '--device', 'cpu', '--quiet'))
        self.assertGreater(counts[0], 0)
        self.assertEqual(*counts)

    def test_measurement_opens_the_model_as_often_as_a_video(self):
        model = self.copy_of_the_model()
        usual = ['-m', model, '-p', PROMPT, '--size', '64x64', '--frames', 9, '--steps', 1, '--device', 'cpu', '--quiet']
        counts = [self.opens(model / 'model_index.json', *command, *usual)
                  for command in (['generate', '-o', 'a.mp4'], ['tune', '-o', 'p.yaml', '--videos', 0, '--samples', 1],
                                  ['bench', 'pipeline', '--modes', 'full', '--warmup', 0, '--repetitions', 1])]
        self.assertGreater(counts[0], 0)
        self.assertEqual(counts, counts[:1] * 3)

    def test_wrong_search_file_is_named_with_a_remedy(self):
        (self.folder / 'p.yaml.search').write_text('garbage')
        self.fail_with(self.tune('-p', PROMPT, '-o', 'p.yaml'), 2, 'p.yaml.search', 'delete it and tune again')
        self.fail_with(self.tune('-p', PROMPT, '-o', 'p.yaml', '--report', 'p.yaml.search'), 2, 'are the same file: p.yaml.search')

    def test_generate_checks_the_profile(self):
        self.succeed(self.tune('-p', PROMPT, '-o', 'p.yaml', '--videos', 0))
        text = (self.folder / 'p.yaml').read_text()
        (self.folder / 'other.yaml').write_text(text.replace('sha256: ', 'sha256: 0'))
        self.fail_with(self.generate('-o', 'a.mp4', '--profile', 'other.yaml'), 2, 'other.yaml', 'another model')
        (self.folder / 'broken.yaml').write_text(text.replace('dense_steps', 'dense_stps'))
        self.fail_with(self.generate('-o', 'a.mp4', '--profile', 'broken.yaml'), 2, 'broken.yaml:', 'dense_steps is missing')
        self.fail_with(self.generate('-o', 'a.mp4', '--profile', 'none.yaml'), 2, 'none.yaml', 'sparsereel tune')
        full = self.report('-o', 'full.y4m', '--attention', 'full')
        result = self.generate('-o', 'a.y4m', '--profile', 'other.yaml', '--attention', 'full', '--json')
        self.warn_with(result, '--profile other.yaml has no effect with --attention full, which computes every block')
        self.assertEqual(json.loads(result.stdout)['recipe'], full['recipe'])

    def test_replaces_only_profiles(self):
        (self.folder / 'notes.yaml').write_text('buy: milk\n')
        self.fail_with(self.tune('-p', PROMPT, '-o', 'notes.yaml'), 2, '--output notes.yaml holds something other than a profile', 'choose another name')
        self.assertEqual((self.folder / 'notes.yaml').read_text(), 'buy: milk\n')
        (self.folder / 'p.yaml').touch()
        for _ in range(2):
            self.succeed(self.tune('-p', PROMPT, '-o', 'p.yaml', '--videos', 0))
        self.assertEqual(self.names(), ['notes.yaml', 'p.yaml'])

    def test_refuses_wrong_options(self):
        for arguments, words in ((['--budget', 'soon'], '--budget soon'), (['--l1', 0], '--l1'), (['--l1', 0.1, '--l2', 0.05], '--l2'),
                                 (['--samples', 0], '--samples'), (['--heat-map', 'a.jpg'], '--heat-map'),
                                 (['-o', 'nowhere/p.yaml'], 'nowhere'), (['--videos', 0, '--min-psnr', 20], '--min-psnr'), (['--videos', 0, '--at-most', 20], '--at-most'),
                                 (['--percentile', 5], '--percentile'), (['--min-psnr', 30, '--percentile', 51], '--percentile'), (['--videos', 0, '--percentile', 5], '--percentile'),
                                 (['--min-psnr', 0], '--min-psnr'), (['--min-psnr', -3], '--min-psnr'), (['--min-psnr', 101], '--min-psnr'),
                                 (['--min-ssim', 0], '--min-ssim'), (['--min-ssim', 1.5], '--min-ssim'), (['--min-ssim', 'high'], '--min-ssim'),
                                 (['--at-most', 0], '--at-most'), (['--at-most', -1], '--at-most'), (['--times', 'none.json'], 'none.json')):
            with self.subTest(arguments):
                self.fail_with(self.run_program('tune', '-m', MODEL, '-p', PROMPT, *arguments), 2, words)
        self.fail_with(self.tune('missing.txt'), 2, 'missing.txt')
        self.assertEqual(self.names(), [])

    def test_reads_prompts_from_a_prompt_set(self):
        for name, text, words in (('a.csv', 'prompt,seed\na ball,\na box,7\n', ('a.csv:3', 'seed')),
                                  ('b.jsonl', '{"prompt": "a ball"}\n{"prompt": ""}\n', ('b.jsonl:2', 'no prompt')),
                                  ('c.md', 'a ball\n', ('c.md', '.jsonl'))):
            (self.folder / name).write_text(text)
            with self.subTest(name):
                self.fail_with(self.tune(name), 2, *words)
        (self.folder / 'd.csv').write_text('prompt\n"a red ball, a box"\n')
        self.assertEqual(self.tuned('d.csv', '-o', 'p.yaml', '--videos', 0)['tune']['samples'], 2)  # only the samples of one prompt, because the first line is a header

    def test_budget_ends_the_run_in_time(self):
        # A complete search with so many samples would take far longer than the budget.
        start = time.monotonic()
        report = self.tuned('-p', PROMPT, '-o', 'p.yaml', '--steps', 900, '--samples', 900, '--videos', 0, '--budget', '8s', '--threads', 1)
        self.assertLess(time.monotonic() - start, 30)  # longer than the budget, because the program's clock starts after it has loaded its libraries
        self.assertLess(report['seconds']['total'], 8 * 1.05 + 0.2)  # tolerance for a busy machine: 0.2 s
        self.assertFalse(report['tune']['complete'])
        self.assertEqual(self.names(), ['p.yaml', 'p.yaml.search'])
        self.assertIn('run the same command again to continue', ' '.join(report['warnings']))

    def interrupt_once_saved(self, arguments):
        process = subprocess.Popen([PROGRAM, 'tune', '-m', MODEL, *SIZE, *map(str, arguments)],
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until((self.folder / 'p.yaml.search').exists, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn('p.yaml.search', errors)
        self.assertEqual(self.names(), ['p.yaml.search'])

    def test_resumes_after_an_interruption(self):
        arguments = ['-p', PROMPT, '-o', 'p.yaml', '--steps', 16, '--samples', 16, '--videos', 0, '--budget', '10m', '--threads', 1]
        self.interrupt_once_saved(arguments)
        tune = self.tuned(*arguments)['tune']
        self.assertTrue(tune['complete'])
        self.assertGreater(tune['resumed_samples'], 0)
        self.assertLess(tune['resumed_samples'], 16)
        self.assertEqual(tune['samples'], 16)
        self.assertEqual(self.names(), ['p.yaml'])
        resumed = (self.folder / 'p.yaml').read_text()
        self.assertEqual(self.tuned(*arguments)['tune']['resumed_samples'], 0)
        self.assertEqual((self.folder / 'p.yaml').read_text(), resumed)

    def test_search_resumes_only_if_its_samples_would_be_the_same(self):
        data = ROOT / 'tests' / 'parity' / 'data'
        two_transformers = ([], ['--flow-shift', 7], ['--cfg-scale-2', 2.5])
        one_transformer = ([], ['--lora', data / 'lora' / 'metadata.safetensors'], ['--text-weights', 'fp8'], ['--vae-dtype', 'bf16'], ['--topk', 0.4])
        for model, changes in ((MODEL, one_transformer), (data / 'wan' / 'pipeline_two_experts', two_transformers)):
            base = ['-p', PROMPT, '-o', 'p.yaml', '--frames', 9, '--cfg-scale', 3, '--at-most', 1e-6, '--topk', 0.3, '--cache', 0, '--dense-steps', 0, '--quiet']
            self.assertEqual(self.tune(*base, model=model).returncode, 1)  # the limit is missed, so the file of the search is kept
            search = (self.folder / 'p.yaml.search').read_bytes()
            for change in changes:
                (self.folder / 'p.yaml.search').write_bytes(search)
                with self.subTest(change):
                    result = self.tune(*base, *change, '--report', 'r.json', model=model)
                    tune = json.loads((self.folder / 'r.json').read_text()).get('tune')
                    self.assertIsNotNone(tune, result.stderr)
                    self.assertEqual(tune['resumed_videos'], 0 if change else tune['videos'])
            (self.folder / 'p.yaml.search').unlink()

    def test_remedies_name_only_options_of_the_command(self):
        for arguments in (['-p', PROMPT, '--budget', '0.01s'], []):
            with self.subTest(arguments):
                result = self.run_program('tune', '-m', MODEL, '-o', 'p.yaml', *SIZE, *arguments)
                self.assertIn(arguments[-1] if arguments else 'no prompt', result.stderr.splitlines()[0])
                remedy = result.stderr.splitlines()[1]
                options = re.findall(r'(?<!\S)--?[a-z][a-z-]*', remedy)
                self.assertTrue(options, remedy)
                known = self.succeed(self.run_program('tune', '--help-all')).stdout
                for option in options:
                    self.assertRegex(known, rf'(?<!\S){option}\b(?!-)')

    def test_search_with_other_settings_keeps_the_earlier_one(self):
        base = ['-p', PROMPT, '-o', 'p.yaml', '--frames', 9, '--at-most', 1e-6, '--topk', 0.3, '--cache', 0, '--dense-steps', 0, '--quiet', '--report', 'r.json']
        self.assertEqual(self.tune(*base).returncode, 1)  # the limit is missed, so the file of the search is kept
        search = (self.folder / 'p.yaml.search').read_bytes()
        result = self.tune(*base, '--topk', 0.4)
        self.assertIn("warning: p.yaml.search holds a search with other settings and is kept; this search uses p.yaml.search-2\n", result.stderr)
        self.assertEqual((self.folder / 'p.yaml.search').read_bytes(), search)
        for change in ([], ['--topk', 0.4]):
            self.tune(*base, *change)
            tune = json.loads((self.folder / 'r.json').read_text())['tune']
            self.assertEqual(tune['resumed_videos'], tune['videos'], change)
            (self.folder / 'p.yaml.search').unlink(missing_ok=True)
        self.assertEqual(self.names(), ['p.missed.yaml', 'p.yaml.search-2', 'r.json'])
        for taken in ('p.yaml.search', 'p.yaml.search-2'):
            self.fail_with(self.tune('-p', PROMPT, '-o', 'p.yaml', '--report', taken), 2, f'are the same file: {taken}')

    def test_refuses_a_blank_prompt(self):
        for prompt in ('', ' \t'):
            self.fail_with(self.tune('-p', prompt, '-o', 'p.yaml'), 2, '--prompt is empty', 'say what to show')

    def test_damaged_search_is_named(self):
        (self.folder / 'p.yaml.search').write_bytes(b'nonsense')
        self.fail_with(self.tune('-p', PROMPT, '-o', 'p.yaml'), 2, 'p.yaml.search')

    def test_search_that_does_not_fit_its_model_is_named(self):
        # The file of an interrupted search fits its model. The test then breaks one thing in it at a time.
        arguments = ['-p', PROMPT, '-o', 'p.yaml', '--steps', 900, '--samples', 900, '--budget', '10m', '--videos', 0]
        self.interrupt_once_saved(arguments)
        search = self.folder / 'p.yaml.search'
        good = search.read_bytes()
        size, = struct.unpack('<Q', good[:8])
        for change in ({'sampled': [[7, 0]]}, {'sampled': []}, {'sampled': [[0, -1]]}, {'videos': 5}, {'videos': {'quantized': [[0, 40, 1, 900, 0]]}},
                       {'steps': [{'mode': 'full'}]}, {'steps': 7}, {'head_speedup': -1}, {'compared_samples': 'many'}):
            header = json.loads(good[8:8 + size])
            header['__metadata__']['search'] = json.dumps(json.loads(header['__metadata__']['search']) | change)
            text = json.dumps(header).encode()
            search.write_bytes(struct.pack('<Q', len(text)) + text + good[8 + size:])
            with self.subTest(change):
                self.fail_with(self.tune(*arguments), 2, 'p.yaml.search')
        header = json.loads(good[8:8 + size])  # removes one head
        header['heads']['shape'][0] -= 1
        header['heads']['data_offsets'][1] -= 8
        text = json.dumps(header).encode()
        search.write_bytes(struct.pack('<Q', len(text)) + text + good[8 + size:-8])
        self.fail_with(self.tune(*arguments), 2, 'p.yaml.search')


class Traces(CommandLineTest):
    def test_reports_have_sparsity_and_error_per_layer_and_step(self):
        attention = self.report('-o', 'a.mp4', *SIZE, '--steps', 3, '--attention', 'check', '--topk', 0.3, '--dropped', 'none', '--dense-steps', 1)['attention']
        layers = len(attention['layer_sparsity'])
        for key in ('step_layer_sparsity', 'step_layer_relative_l1'):
            self.assertEqual([len(row) for row in attention[key]], [layers] * 3)
        self.assertEqual(max(attention['step_layer_sparsity'][0]), 0)
        self.assertLess(max(attention['step_layer_relative_l1'][0]), 1e-4)
        for step in (1, 2):
            self.assertGreater(min(attention['step_layer_sparsity'][step]), 0.2)
            self.assertGreater(min(attention['step_layer_relative_l1'][step]), 1e-3)
        errors = [error for row in attention['step_layer_relative_l1'] for error in row]
        self.assertAlmostEqual(sum(errors) / len(errors), attention['mean_relative_l1'])
        self.assertAlmostEqual(max(errors), attention['max_relative_l1'])
        self.assertEqual(attention['redone_steps'], [])

    def test_report_says_that_a_video_is_black_and_where_its_latents_are(self):
        model = self.model_whose_videos_are(-8192)
        report = json.loads(self.succeed(self.run_program('generate', '-m', model, '-p', PROMPT, '--steps', 1, '-o', 'a.mp4', '--json')).stdout)
        self.assertEqual(report['warnings'], ['the video is black; its latents are in a.mp4.latents.safetensors'])

    @needs_gnuplot
    def test_bench_pipeline_draws_a_heat_map_and_runs_a_profile(self):
        self.succeed(self.run_program('tune', '-m', MODEL, *SIZE, '--steps', 2, '-p', PROMPT, '--videos', 0, '-o', 'p.yaml'))
        result = self.succeed(self.run_program('bench', 'pipeline', '-m', MODEL, '--device', 'cpu', '--size', '192x192', '--steps', 2,
                                               '--modes', 'full,sparse', '--profile', 'p.yaml', '--heat-map', 'h.png', '--json'))
        rows = {row['mode']: row for row in json.loads(result.stdout)['rows'] if row['stage'] == 'step'}
        self.assertEqual(set(rows), {'full', 'sparse', 'profile'})
        self.assertEqual(len(rows['sparse']['step_layer_sparsity']), 2)
        self.assertEqual((self.folder / 'h.png').read_bytes()[:4], b'\x89PNG')


if __name__ == '__main__':
    unittest.main()
