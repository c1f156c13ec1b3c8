"""Tests `bench attention` and `bench pipeline` on a CPU: every mode, every format, bad arguments, Ctrl-C."""
import csv
import importlib.util
import io
import json
import math
import os
import random
import signal
import struct
import subprocess
import sys
import unittest

from support import MODEL, PROGRAM, ROOT, CommandLineTest, limited, needs_gnuplot

TINY = ['--device', 'cpu', '--shape', '1,2,320,32', '--topk', '0.5,0.3', '--warmup', 0, '--repetitions', 2]


class BenchAttention(CommandLineTest):
    def bench(self, *arguments):
        return self.run_program('bench', 'attention', *arguments)

    def report(self, *arguments):
        return json.loads(self.succeed(self.bench('--json', *arguments)).stdout)

    def test_prints_json(self):
        report = self.report(*TINY)
        self.assertEqual((report['command'], report['exit']['code']), ('bench attention', 0))
        rows = report['rows']
        self.assertEqual([(row['mode'], row['topk']) for row in rows],
                         [('full', None), ('quantized', None), ('sparse', 0.5), ('sparse', 0.3)])
        for row in rows:
            self.assertEqual((row['shape'], row['dtype'], row['device']), ([1, 2, 320, 32], 'fp32', 'cpu'))
            self.assertGreater(row['tops'], 0)
            self.assertAlmostEqual(row['tops'], row['effective_tops'] * (1 - row['sparsity']))
            self.assertEqual(row['skipped_pv'] is None, row['mode'] != 'sparse')
            self.assertLessEqual(row['ms_min'], row['ms'])
            self.assertLessEqual(row['ms'], row['ms_max'])
            self.assertAlmostEqual(row['speedup'], rows[0]['ms'] / row['ms'])
            self.assertNotIn('note', row)
        self.assertLess(rows[0]['rel_l1'], 1e-5)
        self.assertLess(rows[1]['rel_l1'], 0.1)
        self.assertLess(rows[2]['sparsity'], rows[3]['sparsity'])
        self.assertLess(rows[2]['rel_l1'], rows[3]['rel_l1'])
        self.assertEqual(report['settings']['data'], 'structured')

    def test_compares_dropped_blocks_means_and_means_by_error_in_one_table(self):
        arguments = ['--device', 'cpu', '--shape', '1,2,320,32', '--modes', 'full,sparse', '--warmup', 0, '--repetitions', 1]
        rows = self.report(*arguments, '--topk', '0.5', '--dropped', 'none,mean', '--select', 'mass,error', '--cell', '16,64')['rows']
        self.assertEqual([(row['dropped'], row['select'], row['cell'], row['topk']) for row in rows],
                         [(None, None, None, None), ('none', 'mass', None, 0.5), ('mean', 'mass', 16, 0.5), ('mean', 'mass', 64, 0.5),
                          ('mean', 'error', 16, 0.5), ('mean', 'error', 64, 0.5)])
        self.assertEqual([row['mean_share'] is None for row in rows], [True, True] + [False] * 4)
        rows = self.report(*arguments, '--error', '0.05,0.2')['rows'][1:]
        self.assertEqual([(row['dropped'], row['select'], row['error_bound'], row['topk']) for row in rows],
                         [('mean', 'error', 0.05, None), ('mean', 'error', 0.2, None)])
        rows = self.report(*arguments, '--block-error', '0.002,0.05')['rows'][1:]
        self.assertEqual([(row['dropped'], row['select'], row['block_error'], row['topk']) for row in rows],
                         [('mean', 'error', 0.002, None), ('mean', 'error', 0.05, None)])
        self.assertLess(rows[0]['sparsity'], rows[1]['sparsity'])
        result = self.succeed(self.bench(*arguments, '--topk', '0.15', '--error', '0.2', '--dropped', 'none,mean'))
        self.assertIn('| topk | error | dropped | select | cell |', result.stdout)
        self.assertIn('| sparse | 0.15 |  | mean | error | 16 |', result.stdout)
        self.assertIn('left out: --dropped none and --error exclude each other', result.stderr)

    def captured(self, name, scales, grid=(4, 8, 8), text=5):
        """Writes q, k and v [1, N, 2, 16] of one attention call for each scale of v. Tokens that are neighbors in space and time resemble each other."""
        heads, head_dim = 2, 16
        tokens = grid[0] * grid[1] * grid[2]
        places = [(t, y, x) for t in range(grid[0]) for y in range(grid[1]) for x in range(grid[2])]
        header, body, draw = {}, b'', random.Random(1)
        metadata = {'frames': grid[0], 'height': grid[1], 'width': grid[2], 'text_tokens': text, 'calls': ' '.join(f'0/{i}' for i in range(len(scales)))}
        for call, scale in enumerate(scales):
            for part in 'qkv':
                waves = [[draw.uniform(-0.6, 0.6) for _ in range(3)] + [draw.uniform(0, 6)] for _ in range(heads * head_dim)]
                rows = [[2 * math.cos(sum(a * b for a, b in zip(wave, place)) + wave[3]) for wave in waves] for place in places]
                rows += [[draw.gauss(0, 1) for _ in waves] for _ in range(text)]
                values = [value * (scale if part == 'v' else 1) for row in rows for value in row]
                data = struct.pack(f'<{len(values)}e', *values)
                header[f'step0.layer{call}.{part}'] = {'dtype': 'F16', 'shape': [1, tokens + text, heads, head_dim], 'data_offsets': [len(body), len(body) + len(data)]}
                body += data
        header['__metadata__'] = {key: str(value) for key, value in metadata.items()}
        text = json.dumps(header).encode()
        (self.folder / name).write_bytes(struct.pack('<Q', len(text)) + text + body)

    @needs_gnuplot
    def test_measures_captured_attention_in_several_token_orders(self):
        self.captured('a.safetensors', [1, 1])
        report = self.report('--device', 'cpu', '--captured', 'a.safetensors', '--token-order', 'hilbert,random', '--topk', '0.5', '--dropped', 'none,mean', '--select', 'mass',
                             '--warmup', 0, '--repetitions', 2, '--report', 'r.json')
        rows = report['rows']
        self.assertEqual([(row['workload'], row['token_order'], row['mode'], row['dropped']) for row in rows],
                         [('a', order, *method) for order in ('hilbert', 'random') for method in (('full', None), ('quantized', None), ('sparse', 'none'), ('sparse', 'mean'))])
        for row in rows:
            self.assertEqual((row['shape'], row['text_tokens']), ([1, 2, 261, 16], 5))
            self.assertGreater(row['ms'], 0)
        self.assertLess(rows[0]['rel_l1'], 1e-5)
        self.assertLess(rows[3]['rel_l1'], rows[2]['rel_l1'])
        self.assertLess(rows[3]['rel_l1'], rows[7]['rel_l1'])  # the hilbert order has the smaller error, because its cells hold similar tokens
        self.assertEqual(report['settings']['data'], '2 calls of a.safetensors')
        self.assertEqual(self.succeed(self.run_program('bench', 'plot', 'r.json', '-o', 'r.png')).stdout, 'r.png: 6 curves\n')
        self.assertEqual((self.folder / 'r.png').read_bytes()[:8], b'\x89PNG\r\n\x1a\n')

    def test_errors_of_captured_calls_are_pooled(self):
        arguments = ['--device', 'cpu', '--topk', '0.3', '--dropped', 'none', '--modes', 'sparse', '--warmup', 0, '--repetitions', 1]
        self.captured('both.safetensors', [0.001, 1000])
        self.captured('first.safetensors', [0.001])
        both, first = (self.report(*arguments, '--captured', name)['rows'][0] for name in ('both.safetensors', 'first.safetensors'))
        self.captured('even.safetensors', [1, 1])
        even = self.report(*arguments, '--captured', 'even.safetensors')['rows'][0]
        # Calls count in proportion to their values. The first call is a millionth of `both` and a larger part of `even`, so the error of `even` lies between those of
        # `first` and `both`.
        self.assertGreater(abs(both['rel_l1'] - first['rel_l1']), 0.005)
        self.assertGreater((first['rel_l1'] - even['rel_l1']) * (even['rel_l1'] - both['rel_l1']), 0)

    def test_refuses_wrong_files_of_captured_attention(self):
        self.captured('a.safetensors', [1])
        (self.folder / 'no.safetensors').write_text('nothing')
        for arguments, words in ((['--captured', 'none.safetensors'], ['none.safetensors']), (['--captured', 'no.safetensors'], ['no.safetensors']),
                                 (['--captured', MODEL + '/vae/diffusion_pytorch_model.safetensors'], ['no metadata entry', 'capture_attention']),
                                 (['--captured', 'a.safetensors', '--token-order', 'spiral'], ['spiral']),
                                 (['--captured', 'a.safetensors', '-o', 'a.safetensors', '--format', 'md'], ['same file'])):
            with self.subTest(arguments=arguments):
                self.fail_with(self.bench('--device', 'cpu', *arguments), 2, *words)

    def test_warns_of_options_without_effect(self):
        self.captured('a.safetensors', [1])
        usual = ['--device', 'cpu', '--modes', 'full', '--warmup', 0, '--repetitions', 1, '--quiet', '--json']
        for arguments, warnings in ((['--captured', 'a.safetensors', '--causal'], ['--causal has no effect on --captured alone']),
                                    (['--shape', '1,1,64,64', '--token-order', 'native'], ['--token-order has no effect on made-up data']),
                                    (['--shape', '1,1,64,64', '--topk', '0.5', '--dropped', 'mean'],
                                     [f'--{option} has no effect with --modes full' for option in ('topk', 'dropped')])):
            with self.subTest(arguments=arguments):
                result = self.bench(*usual, *arguments)
                self.warn_with(result, *warnings)
                self.assertEqual(json.loads(result.stdout)['warnings'], warnings)

    def test_same_seed_gives_the_same_error(self):
        errors = [[row['rel_l1'] for row in self.report(*TINY, '--seed', seed)['rows']] for seed in (3, 3, 4)]
        self.assertEqual(errors[0], errors[1])
        self.assertNotEqual(errors[0], errors[2])

    def test_prints_markdown_with_explanations(self):
        lines = self.succeed(self.bench(*TINY)).stdout.splitlines()
        self.assertIn('structured data, seed 42', lines[0])
        self.assertTrue(lines[2].startswith('| B,H,N,D | mode | topk |'), lines[2])
        table, meanings = lines[2:lines.index('', 2)], lines[lines.index('', 2) + 1:]
        self.assertEqual(len(table), 2 + 4)
        titles = [cell.strip() for cell in table[0].strip('|').split('|')]
        self.assertEqual([line[2:line.index(':')] for line in meanings], titles[titles.index('ms'):])

    def test_writes_a_csv_file(self):
        out = self.succeed(self.bench(*TINY, '--modes', 'full,sparse', '-o', 'a.csv')).stdout
        self.assertEqual(out, 'a.csv: 3 rows\n')
        rows = list(csv.DictReader(io.StringIO((self.folder / 'a.csv').read_text())))
        self.assertEqual([row['mode'] for row in rows], ['full', 'sparse', 'sparse'])
        self.assertEqual(rows[0]['shape'], '1,2,320,32')
        for row in rows:
            self.assertEqual((row['size'], row['steps'], row['seed']), ('', '', '42'))
            self.assertGreater(len(row['machine']), 0)
        self.assertEqual(self.names(), ['a.csv'])

    def test_json_describes_its_origin_and_its_columns(self):
        report = self.report(*TINY, '--modes', 'full')
        self.assertRegex(report['date'], r'^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$')
        self.assertRegex(report['commit'], r'^([0-9a-f]{40,}|unknown)$')
        self.assertIn('Linux', report['os'])
        self.assertTrue(report['command_line'].endswith(' bench attention --json --device cpu --shape 1,2,320,32 --topk 0.5,0.3 --warmup 0 --repetitions 2 --modes full'), report['command_line'])
        self.assertEqual((report['columns']['ms']['title'], report['columns']['ms']['unit']), ('ms', 'ms'))
        for key, column in report['columns'].items():
            self.assertGreater(len(column['meaning']), 0, key)

    def test_writes_a_json_file_and_a_report(self):
        self.succeed(self.bench(*TINY, '--output', 'a.json', '--report', 'b.json', '--accuracy-rows', 0))
        shown = json.loads((self.folder / 'a.json').read_text())
        report = json.loads((self.folder / 'b.json').read_text())
        self.assertEqual(shown['rows'], report['rows'])
        self.assertEqual([row['rel_l1'] for row in shown['rows']], [None] * 4)

    def test_prints_the_table_even_if_the_report_cannot_be_written(self):
        result = self.run_program('bench', 'attention', *TINY, '--report', 'r.json', **limited(100))
        self.fail_with(result, 1, 'cannot write ', 'r.json')
        self.assertIn('| full |', result.stdout)
        self.assertEqual(self.names(), [])

    def test_measures_several_shapes_with_causal_masks_text_and_half_precision(self):
        for dtype in ('bf16', 'fp16'):
            rows = self.report('--device', 'cpu', '--shape', '1,1,100,32;2,1,65,16', '1,1,1,16', '1,4/2,80,32', '--causal', '--modes',
                               'full,sparse', '--topk', 0.5, '--text_tokens', 1, '--dtype', dtype, '--repetitions', 1,
                               '--selection-rows', 64)['rows']
            self.assertEqual([row['shape'] for row in rows[::2]], [[1, 1, 100, 32], [2, 1, 65, 16], [1, 1, 1, 16], [1, 4, 80, 32]])
            self.assertEqual([row.get('kv_heads') for row in rows[::2]], [None, None, None, 2])
            for row in rows:
                self.assertEqual((row['causal'], row['text_tokens'], row['dtype']), (True, 1, dtype))
                self.assertIsNotNone(row['ms'])

    def test_notes_what_a_contender_cannot_compute(self):
        rows = self.report('--device', 'cpu', '--shape', '1,1,64,8', '--topk', 0.5, '--repetitions', 1)['rows']
        self.assertIsNotNone(rows[0]['ms'])
        for row in rows[1:]:
            self.assertIsNone(row['ms'])
            self.assertIn('head_dim from 16 to 256', row['note'])

    def test_run_that_measures_nothing_fails(self):
        result = self.bench('--device', 'cpu', '--shape', '1,1,64,512', '--modes', 'sparse', '--repetitions', 1, '--quiet', '-o', 'a.md')
        self.fail_with(result, 1, 'nothing could be measured', 'head_dim from 16 to 256')
        self.assertEqual(self.names(), [])

    def test_refuses_wrong_arguments(self):
        for arguments, words in (([], ['--workload', '--shape']),
                                 (['--shape', '1,2,3'], ['1,2,3']),
                                 (['--workload', 'sora'], ['sora', 'cogvideox-2b']),
                                 (['--shape', '1,1,64,64', '--topk', '2'], ['--topk 2']),
                                 (['--shape', '1,1,64,64', '--dropped', 'none', '--select', 'error'], ['--dropped none and --select error exclude each other']),
                                 (['--shape', '1,1,64,64', '--topk', '0.5', '--error', '0.1', '--select', 'mass'], ['--select mass and --error exclude each other']),
                                 (['--shape', '1,1,64,64', '--error', '-1'], ['--error -1']),
                                 (['--shape', '1,1,64,64', '--dropped', 'mean', '--cell', '16,48'], ['--cell 48', '16, 32, 64']),
                                 (['--shape', '1,1,64,64', '--warmup', 'x'], ['bench attention --help']),
                                 (['--shape', '1,1,64,64', '--dtype', 'int8'], ['int8', "the command's --help"]),
                                 (['--shape', '1,1,64,64', '--device', 'tpu'], ['tpu']),
                                 (['--shape', '4096,4096,4096,128', '--device', 'cpu'], ['GiB']),
                                 (['--shape', '1073741824,1073741824,1024,1024', '--device', 'cpu'], ['needs about 9', 'GiB']),
                                 (['--shape', '1,1,64,64', '-o', 'none/a.md'], ['none']),
                                 (['--shape', '1,1,64,64', '--report', 'none/a.json'], ['none']),
                                 (['--shape', '1,1,64,64', '--text-tokens', '65'], ['--text-tokens 65'])):
            with self.subTest(arguments=arguments):
                self.fail_with(self.bench(*arguments), 2, *words)
        self.fail_with(self.run_program('bench'), 2, 'bench --help')
        self.assertEqual(self.names(), [])

    def test_interrupt_writes_the_report_but_no_table(self):
        arguments = ['--device', 'cpu', '--shape', '1,1,1024,64', '--topk', '0.5', '--repetitions', '100000',
                     '--report', 'r.json', '-o', 'a.md']
        process, terminal = self.start_program('bench', 'attention', *arguments)
        self.assertIn('/100001', self.read_until(terminal, '/100001'))  # the bar counts rounds, one of which warms up
        process.send_signal(signal.SIGINT)
        errors = self.read_until(terminal, None)
        self.assertEqual(process.wait(timeout=60), 130, errors)
        self.assertIn('remedy', errors)
        self.assertEqual(self.names(), ['r.json'])
        self.assertEqual(json.loads((self.folder / 'r.json').read_text())['exit']['state'], 'interrupted')


SMALL = ['--device', 'cpu', '--random-weights', ROOT / 'configs' / 'tiny.yaml', '--size', '64x64', '--frames', 9, '--steps', 2, '--warmup', 0, '--quiet']
FLOW = ROOT / 'tests' / 'parity' / 'data' / 'wan' / 'pipeline'


class BenchPipeline(CommandLineTest):
    def bench(self, *arguments, **options):
        return self.run_program('bench', 'pipeline', *arguments, **options)

    def report(self, *arguments):
        return json.loads(self.succeed(self.bench('--json', *arguments)).stdout)

    def test_json_has_every_stage_and_contender(self):
        report = self.report(*SMALL, '--topk', '0.5,0.2', '--token-order', 'hilbert,native')
        self.assertEqual((report['command'], report['exit']['code']), ('bench pipeline', 0))
        self.assertEqual((report['settings']['steps'], report['settings']['video_steps'], report['settings']['tokens']), (2, 25, 80))
        self.assertEqual(report['architecture']['transformer']['num_layers'], 6)
        rows = report['rows']
        self.assertEqual([row['stage'] for row in rows],
                         ['load text_encoder', 'text', 'load transformer'] + ['step'] * 6 + ['load vae', 'decode', 'encode'])
        steps = [row for row in rows if row['stage'] == 'step']
        self.assertEqual([(row['mode'], row['topk'], row['token_order']) for row in steps],
                         [('full', None, 'hilbert'), ('quantized', None, 'hilbert'), ('sparse', 0.5, 'hilbert'), ('sparse', 0.2, 'hilbert'),
                          ('sparse', 0.5, 'native'), ('sparse', 0.2, 'native')])
        for row in steps:
            for key in ('ms', 'matmul_ms', 'attention_ms', 'rest_ms', 'speedup', 'video_seconds'):
                self.assertGreater(row[key], 0, key)
            self.assertAlmostEqual(row['matmul_ms'] + row['attention_ms'] + row['rest_ms'], row['ms'], 6)
            self.assertEqual(len(row['layer_sparsity']), 6)
            self.assertIn('cpu' if row['mode'] != 'full' else 'sdpa', row['kernel'])
        self.assertIsNone(steps[0]['psnr'])
        for row in steps[1:]:
            self.assertGreater(row['psnr'], 20)
            self.assertGreater(row['ssim'], 0.9)
            self.assertLess(row['rel_l1'], 0.1)

    def test_prints_tables(self):
        out = self.succeed(self.bench(*SMALL, '--modes', 'full')).stdout.splitlines()
        self.assertIn('random weights of tiny.yaml, fp32, 9 frames of 64x64 (80 tokens, guidance batch 2), 2 steps', out[0])
        self.assertIn('| mode | order | ms a step |', out[2])
        self.assertEqual(self.succeed(self.bench(*SMALL, '--modes', 'full', '--no-decode', '-o', 'a.csv')).stdout, 'a.csv: 4 rows\n')
        rows = list(csv.DictReader(io.StringIO((self.folder / 'a.csv').read_text())))
        self.assertEqual([row['stage'] for row in rows], ['load text_encoder', 'text', 'load transformer', 'step'])
        self.assertEqual({(row['size'], row['steps'], row['seed']) for row in rows}, {('64x64x9', '2', '42')})
        self.assertEqual(self.names(), ['a.csv'])

    @needs_gnuplot
    def test_compares_a_checkpoint_with_a_baseline_and_plots_both(self):
        rows = [{'mode': 'diffusers eager', 'stage': 'step', 'ms': 12345.0}, {'mode': 'diffusers eager', 'stage': 'decode', 'ms': 9.0}]
        arguments = ['--device', 'cpu', '-m', MODEL, '--steps', 1, '--modes', 'full,sparse', '--quiet']
        settings = self.report(*arguments, '--no-decode')['settings']  # the settings that tests/bench/diffusers_report.py copies into its report
        (self.folder / 'rival.json').write_text(json.dumps({'rows': rows, 'settings': settings}))
        self.fail_with(self.bench(*arguments, '--frames', 5, '--against', 'rival.json'), 2, 'rival.json', 'this run')
        out = self.succeed(self.bench(*arguments, '--against', 'rival.json', '--report', 'r.json')).stdout
        self.assertIn('| diffusers eager |', out)
        self.assertEqual(self.succeed(self.run_program('bench', 'plot', 'r.json', '-o', 'r.png')).stdout, 'r.png: 3 bars\n')
        self.assertEqual((self.folder / 'r.png').read_bytes()[:8], b'\x89PNG\r\n\x1a\n')
        self.assertEqual(self.names(), ['r.json', 'r.png', 'rival.json'])

    @needs_gnuplot
    def test_draws_a_chart_of_several_reports_in_each_format(self):
        quality = [{'name': f'topk={topk}', 'mode': 'sparse', 'topk': topk, 'dropped': 'mean', 'select': 'error', 'step_ms': 1, 'psnr': 30 + 10 * topk, 'denoise_seconds': 2 + topk,
                    'full_denoise_seconds': 6} for topk in (0.5, 0.3)]
        for name, machine in (('a.json', 'NVIDIA H200'), ('b.json', 'a CPU')):
            (self.folder / name).write_text(json.dumps({'rows': quality, 'settings': {'model': 'tiny', 'dtype': 'fp16'}, 'machine': {'name': machine}}))
        for ending, start in (('png', b'\x89PNG'), ('svg', b'<?xml'), ('pdf', b'%PDF')):
            self.assertEqual(self.succeed(self.run_program('bench', 'plot', 'a.json', 'b.json', '-o', f'c.{ending}')).stdout, f'c.{ending}: 2 curves\n')
            self.assertEqual((self.folder / f'c.{ending}').read_bytes()[:len(start)], start)
        shown = (self.folder / 'c.svg').read_text()
        for text in ('a: dropped mean, select error', 'b: dropped mean, select error', 'a: full', 'b: full', 'NVIDIA H200', 'a CPU', 'seconds of denoising', 'PSNR dB against full attention', 'frontier'):
            self.assertIn(text, shown)
        (self.folder / 'c.json').write_text(json.dumps({'rows': [{'mode': 'full', 'ms': 3}]}))
        self.fail_with(self.run_program('bench', 'plot', 'a.json', 'c.json', '-o', 'd.png'), 2, 'c.json', 'another command than a.json')

    def test_measures_without_gnuplot_although_nothing_can_be_drawn(self):
        (self.folder / 'none').mkdir()
        without = {'env': {**os.environ, 'PATH': str(self.folder / 'none')}}
        result = self.bench(*SMALL, '--modes', 'sparse', '--no-decode', '--heat-map', 'h.png', '--report', 'r.json', **without)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn('| sparse |', result.stdout)
        self.assertEqual(result.stderr.splitlines(), ['warning: --heat-map h.png cannot be drawn without gnuplot: install it (apt-get install gnuplot-nox)',
                                                      'error: h.png is not drawn: gnuplot is not installed', f"  remedy: install it (apt-get install gnuplot-nox); '{PROGRAM} bench plot' draws a report without measuring again"])
        report = json.loads((self.folder / 'r.json').read_text())
        self.assertEqual((report['exit']['code'], len(report['rows']) > 0), (2, True))
        result = self.run_program('bench', 'plot', 'r.json', '-o', 'h.png', **without)
        self.assertEqual((result.returncode, self.names()), (2, ['none', 'r.json']))

    def test_plot_never_replaces_its_report(self):
        report = self.folder / 'r.json'
        report.write_text(json.dumps({'rows': [{'mode': 'full', 'ms': 1}]}))
        (self.folder / 'link.png').symlink_to('r.json')
        os.link(report, self.folder / 'hard.png')
        before = report.read_text()
        for name in ('link.png', 'hard.png'):
            self.fail_with(self.run_program('bench', 'plot', 'r.json', '-o', name), 2, name, 'same file')
        self.assertEqual((report.read_text(), self.names()), (before, ['hard.png', 'link.png', 'r.json']))

    def test_config_file_chooses_the_selection(self):
        (self.folder / 'a.yaml').write_text('topk: 0.25\ntoken_order: native\n')
        rows = self.report(*SMALL, '--config', 'a.yaml', '--modes', 'sparse', '--no-decode')['rows']
        self.assertEqual([(row['topk'], row['token_order']) for row in rows if row['stage'] == 'step'], [(0.25, 'native')])
        (self.folder / 'a.yaml').write_text('cdf: 0.9\n')
        rows = self.report(*SMALL, '--config', 'a.yaml', '--modes', 'sparse', '--no-decode')['rows']
        self.assertEqual([(row['topk'], row['cdf']) for row in rows if row['stage'] == 'step'], [(None, 0.9)])
        rows = self.report(*SMALL, '--config', 'a.yaml', '--modes', 'sparse', '--topk', '0.5', '--no-decode')['rows']
        self.assertEqual([row['topk'] for row in rows if row['stage'] == 'step'], [0.5])
        (self.folder / 'a.yaml').write_text('dropped: mean\nselect: mass\ncell: 32\n')
        rows = self.report(*SMALL, '--config', 'a.yaml', '--modes', 'sparse', '--topk', '0.5', '--no-decode')['rows']
        self.assertEqual([(row['dropped'], row['select'], row['cell']) for row in rows if row['stage'] == 'step'], [('mean', 'mass', 32)])
        warning = 'a.yaml:3:7: cell 32 has no effect without means for dropped blocks'
        result = self.bench(*SMALL, '--config', 'a.yaml', '--modes', 'sparse', '--topk', '0.5', '--dropped', 'none', '--no-decode', '--json')
        self.warn_with(result, warning)
        self.assertEqual(json.loads(result.stdout)['warnings'], [warning])

    def test_warns_of_options_without_effect(self):
        result = self.bench(*SMALL, '--modes', 'full', '--no-decode', '--topk', '0.5', '--select', 'mass', '--similarity', '0.5', '--heat-map', 'h.png',
                            '--token-order', 'native,hilbert', '--json')
        why = 'no effect with --modes full'
        warnings = [f'--topk has {why}', f'--select has {why}', f'--heat-map has {why}', f'--token-order: all orders but the first have {why}',
                    f'--similarity 0.5 has {why}']
        self.warn_with(result, *warnings)
        self.assertEqual(json.loads(result.stdout)['warnings'], warnings)
        self.assertEqual(self.names(), [])

    @needs_gnuplot
    def test_compares_dropped_blocks_with_means(self):
        report = self.report(*SMALL, '--modes', 'sparse', '--topk', '0.5', '--dropped', 'none,mean', '--no-decode', '--heat-map', 'h.png')
        rows = [row for row in report['rows'] if row['stage'] == 'step']
        self.assertEqual([(row['dropped'], row['select']) for row in rows], [('none', 'mass'), ('mean', 'error')])
        self.assertEqual([row['mean_share'] is None for row in rows], [True, False])
        rows = [row for row in self.report(*SMALL, '--modes', 'sparse', '--error', '0.1', '--no-decode')['rows'] if row['stage'] == 'step']
        self.assertEqual([(row['dropped'], row['select'], row['error_bound']) for row in rows], [('mean', 'error', 0.1)])

    @needs_gnuplot
    def test_compares_caches_over_whole_runs(self):
        whole_runs = [option for option in SMALL if option not in ('--steps', 2)]
        arguments = [*whole_runs, '--modes', 'full,sparse', '--topk', '0.5', '--cache', '0,steps:5,forecast:100', '--repetitions', 2]
        report = self.report(*arguments, '--heat-map', 'h.png', '--report', 'r.json')
        self.assertEqual((report['settings']['steps'], report['settings']['video_steps']), (25, 25))
        stages = {row['stage']: row for row in report['rows']}
        rows = [row for row in report['rows'] if row['stage'] == 'step']
        caches = [(None, None), ('steps:5', 5), ('forecast:100', 1)]
        self.assertEqual([(row['mode'], row['cache'], row['computed_steps']) for row in rows], [(mode, *cache) for mode in ('full', 'sparse') for cache in caches])
        for row in rows:
            self.assertEqual(row['matmul_ms'] is None, row['cache'] is not None)
            self.assertAlmostEqual(row['speedup'], rows[0]['ms'] / row['ms'], 6)
            self.assertAlmostEqual(row['video_seconds'], (stages['text']['ms'] + 25 * row['ms'] + stages['decode']['ms']) / 1000, 6)
            self.assertEqual(row['psnr'] is None, row is rows[0])
        self.assertLess(rows[2]['ms'], rows[0]['ms'])
        steps = rows[4]['step_layer_sparsity']
        self.assertEqual([step for step in range(25) if steps[step][1] is not None], [0, 6, 12, 18, 24])
        self.assertEqual([step[0] is None for step in steps], [False] * 25)
        self.assertEqual(self.succeed(self.run_program('bench', 'plot', 'r.json', '-o', 'r.png')).stdout, 'r.png: 6 bars\n')
        self.assertEqual(self.names(), ['h.png', 'r.json', 'r.png'])

    def test_config_file_chooses_the_cache(self):
        def caches(config, *arguments):
            (self.folder / 'a.yaml').write_text(config)
            report = self.report(*SMALL, '--config', 'a.yaml', '--modes', 'full,quantized', '--no-decode', *arguments)
            warned = '--cache steps:2 has no effect with 2 steps, all of which it computes'
            self.assertEqual(report['warnings'], [warned] if arguments else [])
            return [(row['cache'], row['computed_steps']) for row in report['rows'] if row['mode'] == 'full']

        self.assertEqual(caches('cache: steps:1\n'), [('steps:1', 1)])
        self.assertEqual(caches('preset: fast\n')[0][0], 'forecast:0.2')
        self.assertEqual(caches('cache: steps:1\n', '--cache', '0,steps:2'), [(None, None), ('steps:2', 2)])
        rows = self.report(*SMALL, '--modes', 'full,sparse', '--no-decode')['rows']  # no preset was named, so the rows take the default preset's block selection, but not its cache or dense steps
        self.assertEqual([(row['cache'], row['dense_steps'], row['topk']) for row in rows if row['stage'] == 'step'], [(None, 0, None), (None, 0, 0.5)])
        one_step = [1 if option == 2 else option for option in SMALL]
        for config, named in (('cache: steps:1\n', 'a.yaml:1:8: cache steps:1'), ('preset: fast\n', 'a.yaml:1:9: preset fast')):
            (self.folder / 'a.yaml').write_text(config)
            report = self.report(*one_step, '--config', 'a.yaml', '--modes', 'full', '--no-decode')
            self.assertEqual([warning.split(' has no effect')[0] for warning in report['warnings']], [named])
        out = self.succeed(self.bench(*SMALL, '--modes', 'full', '--cache', '0,steps:1', '--no-decode')).stdout.splitlines()
        self.assertIn('| mode | order | cache | computed | ms a step |', out[2])
        self.succeed(self.bench(*SMALL, '--modes', 'full', '--cache', 'steps:1', '--no-decode', '-o', 'a.csv'))
        rows = list(csv.DictReader(io.StringIO((self.folder / 'a.csv').read_text())))
        self.assertEqual((rows[-1]['cache'], rows[-1]['computed_steps'], rows[-1]['matmul_ms']), ('steps:1', '1', ''))

    def test_uses_the_noise_levels_of_a_video_with_as_many_steps(self):
        (self.folder / 'a.yaml').write_text('sigmas: 1,0.9,0.5,0.25,0.1\n')
        flow = ['-m', FLOW, '--config', 'a.yaml', '--device', 'cpu', '--size', '64x64', '--frames', 1, '--scheduler', 'euler', '--modes', 'full', '--warmup', 0, '--no-decode', '--quiet']
        for arguments, steps in (([], 4), (['--steps', 2], 2), (['--steps', 5], 5), (['--cache', 'steps:2'], 5)):
            settings = self.report(*flow, *arguments)['settings']
            self.assertEqual((settings['steps'], settings['video_steps']), (steps, 5), arguments)
        for steps in ([], ['--steps', 5]):  # now with the default sampler, which takes no noise levels
            report = self.report('-m', MODEL, *flow[2:10], '--modes', 'full', '--warmup', 0, '--no-decode', '--quiet', '--cache', '0,steps:5', *steps)
            self.assertEqual(report['settings']['video_steps'], 50)
            self.assertEqual(report['settings']['steps'], 5 if steps else 50)
            flow_alone = 'a.yaml:1:9: sigmas 1,0.9,0.5,0.25,0.1 has no effect with a scheduler that does not use flow matching'
            self.assertEqual(report['warnings'], [flow_alone] + ['--cache steps:5 has no effect with 5 steps, all of which it computes'] * len(steps[:1]))
        (self.folder / 'a.yaml').write_text('sigmas: 0.5,1\n')
        self.fail_with(self.bench(*flow, '--steps', 2), 2, 'a.yaml:1:9: sigmas', 'do not fall')

    def test_measures_the_other_stages_if_one_fails(self):
        report = json.loads(self.succeed(self.bench(*SMALL, '--modes', 'full', '--json', **limited(100))).stdout)
        rows = {row['stage']: row for row in report['rows']}
        self.assertGreater(rows['step']['ms'], 0)
        self.assertGreater(rows['decode']['ms'], 0)
        self.assertIsNone(rows['encode']['ms'])
        self.assertIn('video.', rows['encode']['note'])
        model = self.copy_of_the_model()
        (model / 'vae' / 'diffusion_pytorch_model.safetensors').unlink()
        rows = {row['stage']: row for row in self.report('--device', 'cpu', '-m', model, '--steps', 1, '--modes', 'full', '--quiet')['rows']}
        self.assertGreater(rows['step']['ms'], 0)
        self.assertIsNone(rows['decode']['ms'])
        self.assertIn('vae', rows['decode']['note'])

    def test_outputs_never_replace_input_files(self):
        (self.folder / 'rival.json').write_text('{"rows": []}')
        for arguments in (['--report', 'rival.json'], ['-o', './rival.json']):
            self.fail_with(self.bench(*SMALL, '--against', 'rival.json', *arguments), 2, '--against', 'same file')
        self.fail_with(self.bench(*SMALL, '-o', 'a.json', '--report', 'a.json'), 2, 'same file')
        self.fail_with(self.run_program('bench', 'attention', *TINY, '-o', 'a.json', '--report', 'a.json'), 2, 'same file')
        self.assertEqual((self.folder / 'rival.json').read_text(), '{"rows": []}')
        self.assertEqual(self.names(), ['rival.json'])

    def test_refuses_wrong_arguments(self):
        for arguments, words in ((['--modes', 'fast'], ['fast']), (['--topk', '0'], ['--topk']),
                                 (['--token-order', 'spiral'], ['spiral']), (['--cache', '0,steps:0'], ['--cache steps:0']),
                                 (['--dropped', 'none', '--error', '0.1'], ['--dropped none and --error exclude each other']),
                                 (['--repetitions', 0], ['--repetitions']), (['--steps', 0], ['--steps']), (['--against', 'none.json'], ['none.json', 'diffusers_report.py']),
                                 (['-m', MODEL], ['--model', '--random-weights']), (['--random-weights', 'none.yaml'], ['none.yaml'])):
            with self.subTest(arguments=arguments):
                given = SMALL if arguments[0] != '--random-weights' else SMALL[:2]
                self.fail_with(self.bench(*(given if arguments[0] != '--steps' else [*SMALL[:8], '--quiet']), *arguments), 2, *words)
        (self.folder / 'r.json').write_text('{}')
        self.fail_with(self.run_program('bench', 'plot', 'r.json'), 2, 'r.json')
        self.fail_with(self.run_program('bench', 'plot', 'none.json'), 2, 'none.json', 'bench pipeline')
        self.fail_with(self.run_program('bench', 'plot', 'r.json', '-o', 'r.jpg'), 2, 'r.jpg')
        self.assertEqual(self.names(), ['r.json'])


@unittest.skipUnless(importlib.util.find_spec('diffusers'), 'needs a python with diffusers')
class Diffusers(CommandLineTest):
    def test_makes_a_whole_video_from_the_settings_of_a_report(self):
        self.succeed(self.run_program('bench', 'pipeline', '--device', 'cpu', '-m', MODEL, '--modes', 'full', '--steps', 1, '--no-decode', '--quiet', '--report', 'r.json'))
        settings = json.loads((self.folder / 'r.json').read_text())['settings']
        script = ROOT / 'tests' / 'bench' / 'diffusers_report.py'
        subprocess.run([sys.executable, script, 'r.json', '--device', 'cpu', '--video', 'video.rgb'], cwd=self.folder, check=True, capture_output=True)
        self.assertEqual((self.folder / 'video.rgb').stat().st_size, settings['frames'] * settings['height'] * settings['width'] * 3)


if __name__ == '__main__':
    unittest.main()
