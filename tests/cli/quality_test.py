"""Tests `bench quality` on a CPU: figures whose values are known, every format, pictures and charts, bad arguments, and Ctrl-C."""
import csv
import hashlib
import io
import json
import shutil
import signal
import unittest

from support import MODEL, ROOT, CommandLineTest, limited, needs_gnuplot

TINY = ROOT / 'assets' / 'tiny'
SMALL = ['--device', 'cpu', '-m', MODEL, '--steps', 2, '--quiet']
METHOD = ['--dropped', 'none', '--select', 'mass', '--similarity', '-0.1', '--token-order', 'hilbert', '--selection-rows', 64]
LARGER = [*SMALL[:4], '--size', '128x128', '--steps', 2, '--quiet']  # videos of this size have four blocks
FIELDS = {'topk', 'cdf', 'error_bound', 'block_error', 'profile', 'dropped', 'select', 'cell', 'selection_rows', 'similarity', 'dense_steps', 'token_order', 'mode', 'cache', 'weights', 'preset', 'name',
          'computed_steps', 'computed_dense_steps', 'kept_share', 'psnr', 'psnr_lowest', 'ssim', 'ms_ssim', 'psnr_difference', 'psnr_difference_se', 'ssim_difference', 'ssim_difference_se',
          'ms_ssim_difference', 'ms_ssim_difference_se', 'rel_l1', 'predicted_error', 'sparsity', 'mean_share', 'step_ms', 'denoise_seconds', 'full_step_ms', 'full_denoise_seconds',
          'speedup', 'beaten_by', 'judge', 'kernel', 'prompts'}
TIMES = ('step_ms', 'denoise_seconds', 'full_step_ms', 'full_denoise_seconds')
FIELDS |= {time + ending for time in TIMES for ending in ('_lower_quartile', '_upper_quartile')} | {figure + ending for figure in ('psnr', 'ssim', 'ms_ssim') for ending in ('_p5', '_sd')}


class BenchQuality(CommandLineTest):
    def setUp(self):
        super().setUp()
        (self.folder / 'p.txt').write_text('a red circle moving to the right on a blue background\n# a comment\na dog\n')

    def bench(self, *arguments, prompts='p.txt'):
        return self.run_program('bench', 'quality', prompts, *arguments)

    def report(self, *arguments, **options):
        return json.loads(self.succeed(self.bench('--json', *arguments, **options)).stdout)

    def test_compares_eight_bit_weights_with_those_of_the_run(self):
        exact, reduced = ([*SMALL, *METHOD, '--topk', '1', '--no-rel-l1', '--timed-steps', 0, *weights] for weights in ([], ['--weights', 'fp8']))
        self.assertEqual([row['mode'] for row in self.report(*exact)['rows']], ['sparse'])
        report = self.report(*reduced)
        self.assertEqual([row['mode'] for row in report['rows']], ['full', 'sparse'])
        full, sparse = report['rows']
        self.assertTrue(15 < full['psnr_lowest'] <= full['psnr'] < 60, full)
        self.assertAlmostEqual(sparse['psnr'], full['psnr'], delta=0.1)  # sparse attention computes every block here
        self.assertEqual(report['settings']['weights'], 'fp8')
        self.assertEqual(self.report(*SMALL, '--modes', 'full', '--no-rel-l1', '--timed-steps', 0, '--weights', 'fp8')['rows'], [full])

    @needs_gnuplot
    def test_full_attention_with_other_weights_says_that_it_took_no_turns(self):
        arguments = [*SMALL, '--limit', 1, '--modes', 'full,sparse', '--no-rel-l1']
        for weights, turns in (([], True), (['--weights', 'fp8'], False)):
            self.assertEqual(self.report(*arguments, *weights)['full']['in_turns'], turns)
            out = self.succeed(self.bench(*arguments, *weights, '--plot', 'a.png')).stdout
            self.assertEqual('weights in fp8' in out and 'full attention without 8-bit weights: ' in out, not turns, out)
            self.assertEqual('timed after the rows of other weights, not in turns' in out, not turns, out)
            self.assertIn('x full', out)
        self.succeed(self.bench(*arguments, '--weights', 'fp8', '--report', 'r.json'))
        self.assertEqual(self.succeed(self.run_program('bench', 'plot', 'r.json', '-o', 'b.png')).stdout, 'b.png: 2 curves\n')

    def test_settings_name_text_weights_and_loras(self):
        style = ROOT / 'tests' / 'parity' / 'data' / 'lora' / 'plain.safetensors'
        usual = [*SMALL, '--limit', 1, '--no-rel-l1', '--timed-steps', 0]
        self.assertEqual(self.report(*usual)['settings'].get('lora', ''), '')
        changed = [*usual, '--lora', f'{style}:0.5', '--text-weights', 'fp8']
        settings = self.report(*changed)['settings']
        self.assertEqual((settings['lora'], settings['lora_sha256'], settings['text_weights']),
                         ('plain.safetensors:0.5', hashlib.sha256(style.read_bytes()).hexdigest(), 'fp8'))
        self.assertIn(', text weights in fp8, LoRA plain.safetensors:0.5, ', self.succeed(self.bench(*changed)).stdout.splitlines()[0])

    def test_fewer_blocks_are_further_from_full_attention(self):
        report = self.report('--device', 'cpu', '-m', TINY, '--size', '128x128', '--frames', 9, '--steps', 2, '--limit', 1, '--threads', 2, '--quiet', *METHOD, '--topk', '1,0.5,0.2')
        self.assertEqual((report['command'], report['exit']['code'], report['settings']['tokens']), ('bench quality', 0, 3 * 8 * 8 + 32))
        every, half, fifth = report['rows']
        for row in report['rows']:
            self.assertEqual(set(row) - {'judge_counts'}, FIELDS)
            self.assertEqual((row['cdf'], row['error_bound'], row['profile'], row['cell'], row['dropped'], row['select'], row['token_order']), (None, None, None, None, 'none', 'mass', 'hilbert'))
            self.assertEqual((row['psnr'], row['psnr_p5'], row['psnr_sd']), (row['psnr_lowest'], None, None))  # one prompt gives no percentile and no deviation
            for time in TIMES:
                self.assertTrue(row[time + '_lower_quartile'] <= row[time] <= row[time + '_upper_quartile'], time)
            self.assertAlmostEqual(row['speedup'], row['full_step_ms'] / row['step_ms'])
            self.assertAlmostEqual(row['denoise_seconds'], 2 * row['step_ms'] / 1000)
            self.assertEqual((row['full_step_ms'], row['full_denoise_seconds']), (report['full']['step_ms'], report['full']['denoise_seconds']))
            self.assertEqual([prompt['psnr'] for prompt in row['prompts']], [row['psnr']])
            self.assertEqual(set(row['prompts'][0]['judge']), {'shape', 'colour', 'background', 'motion'})
            self.assertEqual((row['judge_counts']['prompts'], len(row['judge_counts']['motion'])), (1, 2))
        self.assertGreater(every['psnr'], 80)
        self.assertGreater(every['ssim'], 0.9999)
        self.assertLess(every['rel_l1'], 1e-4)
        self.assertEqual((every['topk'], every['sparsity'], every['mean_share']), (1, 0, 0))
        self.assertGreater(every['psnr'], half['psnr'] + 20)
        self.assertGreater(half['psnr'], fifth['psnr'])
        self.assertGreater(half['ssim'], fifth['ssim'])
        self.assertLess(half['rel_l1'], fifth['rel_l1'])
        self.assertLess(0.1, half['sparsity'])
        self.assertLess(half['sparsity'], fifth['sparsity'])
        self.assertIn(report['full']['judge'], (0, 1))

    def test_lists_expand_and_contradictions_are_left_out(self):
        result = self.succeed(self.bench(*SMALL, '--limit', 1, '--timed-steps', 0, '--no-rel-l1', '--topk', '0.5,0.3', '--dropped', 'none,mean', '--select', 'mass,error', '--cell', '16,32',
                                         '--token-order', 'hilbert,native', '--dense-steps', '0,1', '--json'))
        rows = json.loads(result.stdout)['rows']
        methods = [('none', 'mass', None)] + [('mean', select, cell) for select in ('mass', 'error') for cell in (16, 32)]
        self.assertEqual([(row['token_order'], row['dense_steps'], row['dropped'], row['select'], row['cell'], row['topk']) for row in rows if row['dense_steps'] == 0],
                         [(order, 0, *method, topk) for order in ('hilbert', 'native') for method in methods for topk in (0.5, 0.3)])
        self.assertEqual(len(rows), 2 * 2 * 2 * 5)
        self.assertEqual({(row['step_ms'], row['rel_l1']) for row in rows}, {(None, None)})
        self.assertIn('left out: --dropped none and --select error exclude each other', result.stderr)

    def test_each_kind_of_dropped_block_has_its_default_topk_unless_a_config_sets_one(self):
        arguments = ['--device', 'cpu', '--steps', 1, '--quiet', '--limit', 1, '--timed-steps', 0, '--no-rel-l1', '--dropped', 'none,mean']
        for model, expected in ((MODEL, [('none', 0.5), ('mean', 0.12)]), (TINY, [('none', 0.5), ('mean', 0.5)])):
            rows = self.report('-m', model, '--size', '64x64', '--frames', 9, *arguments)['rows']
            self.assertEqual([(row['dropped'], row['topk']) for row in rows], expected)
            self.assertEqual({(row['cache'], row['dense_steps']) for row in rows}, {(None, 0)})  # rows take the preset's block selection, but not its cache or dense steps

    def test_prompts_get_seeds_as_in_a_batch_and_full_attention_is_the_reference(self):
        arguments = [*LARGER, *METHOD, '--topk', 0.3, '--timed-steps', 0]
        both = self.report(*arguments)['rows'][0]
        self.assertEqual([prompt['prompt'] for prompt in both['prompts']], ['a red circle moving to the right on a blue background', 'a dog'])
        self.assertLess(both['psnr'], 90)
        self.assertAlmostEqual(both['psnr'], sum(prompt['psnr'] for prompt in both['prompts']) / 2)
        self.assertEqual(both['psnr_lowest'], min(prompt['psnr'] for prompt in both['prompts']))
        least, most = sorted(prompt['psnr'] for prompt in both['prompts'])
        self.assertAlmostEqual(both['psnr_p5'], least + 0.05 * (most - least))
        self.assertAlmostEqual(both['psnr_sd'], (most - least) / 2**0.5)
        (self.folder / 'dog.jsonl').write_text('{"prompt": "a dog"}\n')
        self.assertEqual(self.report(*arguments, '--seed', 43, prompts='dog.jsonl')['rows'][0]['prompts'], both['prompts'][1:])
        self.assertEqual(both['judge'], None)  # null, because this model has no classifier

    def test_caches_reuse_steps_of_full_attention_and_of_sparse(self):
        arguments = [*LARGER[:6], '--steps', 6, '--quiet', '--limit', 1]
        report = self.report(*arguments, *METHOD, '--topk', 1, '--modes', 'full,sparse', '--cache', '0,1e-9,first-block:5,forecast:5,steps:4', '--no-rel-l1')
        rows = report['rows']
        caches = [None, 'first-block:1e-09', 'first-block:5', 'forecast:5', 'steps:4']
        self.assertEqual([(row['mode'], row['cache']) for row in rows], [('full', cache) for cache in caches[1:]] + [('sparse', cache) for cache in caches])
        for row in rows:
            self.assertEqual(row['topk'], None if row['mode'] == 'full' else 1)
            self.assertEqual([prompt['computed_steps'] for prompt in row['prompts']], [row['computed_steps']])
            self.assertAlmostEqual(row['speedup'], row['full_denoise_seconds'] / row['denoise_seconds'])
            if row['cache'] in caches[:2]:
                self.assertEqual(row['computed_steps'], 6)
                self.assertGreater(row['psnr'], 80)
                self.assertAlmostEqual(row['denoise_seconds'], 6 * row['step_ms'] / 1000)
            else:
                self.assertGreater(row['denoise_seconds'], row['computed_steps'] * row['step_ms'] / 1000)  # more than the computed steps, because reused steps take some time, too
                self.assertLess(row['computed_steps'], 6)
                self.assertLess(row['psnr'], 80)
        self.assertEqual([row['computed_steps'] for row in rows if row['cache'] == 'steps:4'], [4, 4])
        (self.folder / 'a.yaml').write_text('cache: steps:4\n')
        rows = self.report(*arguments, '--modes', 'full', '--config', 'a.yaml', '--no-rel-l1', '--timed-steps', 0)['rows']
        self.assertEqual([(row['mode'], row['cache']) for row in rows], [('full', 'steps:4')])
        never = self.bench(*arguments, '--modes', 'full')
        self.fail_with(never, 2, '--modes full', '--cache', '--weights fp8')
        nothing = self.report(*arguments, '--modes', 'full', '--cache', 'steps:6', '--no-rel-l1', '--timed-steps', 0)
        self.assertEqual(nothing['warnings'], ['--cache steps:6 has no effect with 6 steps, all of which it computes'])

    def test_compares_modes_and_dense_steps_with_one_row_for_each_prompt(self):
        arguments = [*LARGER, '--modes', 'quantized,sparse', '--topk', '0.2,0.5', '--dense-steps', '0,50%', '--timed-steps', 0, '--no-rel-l1']
        report = self.report(*arguments, '--against', 'topk=0.2,dense-steps=0')
        rows = report['rows']
        self.assertEqual([(row['name'], row['mode'], row['dense_steps'], row['computed_dense_steps']) for row in rows],
                         [('quantized', 'quantized', 0, None)] +
                         [(f'sparse,dense-steps={share},topk={topk}', 'sparse', count, count) for topk in ('0.2', '0.5') for share, count in (('0', 0), ('50%', 1))])
        against = rows[1]
        for row in rows:
            pairs = [own['psnr'] - other['psnr'] for own, other in zip(row['prompts'], against['prompts'])]
            self.assertEqual(len(pairs), 2)
            if row is against:
                self.assertIsNone(row['psnr_difference'])
                continue
            self.assertAlmostEqual(row['psnr_difference'], sum(pairs) / 2)
            self.assertAlmostEqual(row['psnr_difference_se'], abs(pairs[0] - pairs[1]) / 2)
            self.assertAlmostEqual(row['ssim_difference'], row['ssim'] - against['ssim'])
            self.assertIsNone(row['ms_ssim'])  # null, because the frames are too small for five scales
        self.assertGreater(rows[0]['psnr_difference'], 0)
        out = self.succeed(self.bench(*arguments, '--against', '--topk 0.2, dense_steps 0')).stdout
        self.assertIn('paired: PSNR minus that of sparse,dense-steps=0,topk=0.2 for the same prompt', out)
        self.assertIn('| paired, dB |', out)
        for against, word in (('sparse', '4 rows'), ('topk=0.3', 'no row')):
            self.fail_with(self.bench(*arguments, '--against', against), 2, f'--against {against} names {word}', 'quantized; sparse,dense-steps=0,topk=0.2')

    @needs_gnuplot
    def test_uses_times_of_another_model(self):
        usual = [*LARGER[:6], '--steps', 4, '--quiet', '--limit', 1, '--topk', '0.5,0.2', '--no-rel-l1']
        pipeline = ['bench', 'pipeline', '-m', MODEL, '--device', 'cpu', '--size', '64x64', '--steps', 1, '--topk', '0.5', '--no-decode', '--quiet', '--report', 't.json']
        self.succeed(self.run_program(*pipeline))
        times = {row['mode']: row['ms'] for row in json.loads((self.folder / 't.json').read_text())['rows'] if row['stage'] == 'step'}
        report = self.report(*usual, '--modes', 'quantized,sparse', '--dense-steps', '0,25%', '--cache', '0,steps:2', '--times', 't.json', '--plot', 'a.png')
        self.assertIn('64x64', report['settings']['times'][0])
        self.assertTrue((self.folder / 'a.png').exists())
        self.assertAlmostEqual(report['full']['denoise_seconds'], 4 * times['full'] / 1000)
        for row in report['rows']:
            if row['topk'] == 0.2:
                self.assertIsNone(row['step_ms'])
                self.assertIn('no report of --times has a step like this row\'s', row['note'])
                continue
            own, dense = times[row['mode']], row['computed_dense_steps'] or 0
            computed = (row['computed_steps'] - dense) * own + dense * times['quantized']
            self.assertAlmostEqual(row['step_ms'], computed / row['computed_steps'])
            self.assertAlmostEqual(row['denoise_seconds'], (computed + (4 - row['computed_steps']) * own / 2) / 1000)  # a reused step computes one of the model's two layers
            self.assertEqual(row['full_step_ms'], times['full'])
            self.assertTrue(row['step_ms_lower_quartile'] <= row['step_ms'] <= row['step_ms_upper_quartile'])
        self.warn_with(self.bench(*usual, '--times', 't.json', '--timed-steps', 1), '--timed-steps has no effect with --times')
        self.warn_with(self.bench(*usual, '--timed-steps', 9), '--timed-steps 9: a video has 4 steps, so all are timed')
        self.fail_with(self.bench(*usual, '--times', 'p.txt'), 2, 'p.txt')
        self.fail_with(self.bench(*usual, '--times', 't.json', '-o', 't.json'), 2, '--times', 'same file')

    def test_compares_presets_with_rows_of_the_lists(self):
        tiny = ['--device', 'cpu', '-m', TINY, '--size', '64x64', '--frames', 9, '--steps', 10, '--limit', 1, '--quiet', '--no-rel-l1', '--timed-steps', 0]
        report = self.report(*tiny, '--preset', 'exact,quality,balanced')
        self.assertEqual([(row['preset'], row['mode'], row['topk'], row['cache'], row['dense_steps']) for row in report['rows']],
                         [('quality', 'quantized', None, 'forecast:0.14:20%:1', 0), ('balanced', 'sparse', 0.5, 'forecast:0.16:20%:1', 2)])
        self.assertEqual(report['left_out'], ['--preset exact, which is full attention, the baseline of all rows'])
        self.fail_with(self.bench(*tiny, '--preset', 'exact'), 2, '--preset exact: full attention without a cache')
        rows = self.report(*tiny, '--preset', 'balanced', '--topk', '0.3', '--weights', 'auto,fp8')['rows']
        self.assertEqual([(row['preset'], row['topk'], row['weights']) for row in rows], [(None, None, 'fp8')] + [(preset, topk, weights) for preset, topk in (('balanced', 0.5), (None, 0.3))
                                                                                                                 for weights in ('auto', 'fp8')])
        self.assertEqual(rows[0]['mode'], 'full')
        self.assertNotEqual(rows[3]['psnr'], rows[4]['psnr'])
        self.fail_with(self.bench(*tiny, '--preset', 'fastest'), 2, '--preset fastest', 'no such preset')

    def test_dense_steps_raise_fidelity_and_lower_sparsity(self):
        rows = self.report(*LARGER, *METHOD, '--limit', 1, '--topk', 0.2, '--dense-steps', '0,1,2', '--timed-steps', 1)['rows']
        self.assertLess(rows[0]['psnr'], rows[1]['psnr'])
        self.assertLess(rows[1]['psnr'], rows[2]['psnr'])
        self.assertEqual(rows[2]['sparsity'], 0)
        self.assertTrue(all(row['step_ms'] > 0 for row in rows))

    @needs_gnuplot
    def test_writes_tables_pictures_and_a_chart(self):
        arguments = [*SMALL, *METHOD, '--limit', 1, '--topk', '0.5,0.3']
        out = self.succeed(self.bench(*arguments, '-o', 'a.csv', '--plot', 'a.png', '--pictures', 'frames', '--report', 'r.json')).stdout
        self.assertEqual(out, 'a.csv: 2 rows\n')
        rows = list(csv.DictReader(io.StringIO((self.folder / 'a.csv').read_text())))
        self.assertEqual([(row['topk'], row['dropped'], row['select']) for row in rows], [('0.5', 'none', 'mass'), ('0.3', 'none', 'mass')])
        report = json.loads((self.folder / 'r.json').read_text())
        self.assertEqual([float(row['psnr']) for row in rows], [row['psnr'] for row in report['rows']])
        self.assertEqual(sorted(path.name for path in (self.folder / 'frames').iterdir()),
                         ['00-full.png', '01-topk-0.5-none-mass-hilbert.png', '02-topk-0.3-none-mass-hilbert.png'])
        self.assertEqual(self.succeed(self.run_program('bench', 'plot', 'r.json', '-o', 'b.png')).stdout, 'b.png: 1 curve\n')
        self.assertEqual((self.folder / 'a.png').read_bytes(), (self.folder / 'b.png').read_bytes())
        self.assertEqual((self.folder / 'a.png').read_bytes()[:8], b'\x89PNG\r\n\x1a\n')
        self.assertEqual(self.names(), ['a.csv', 'a.png', 'b.png', 'frames', 'p.txt', 'r.json'])
        lines = self.succeed(self.bench(*arguments, '--no-rel-l1')).stdout.splitlines()
        self.assertIn('2 steps, seed 42, means over 1 prompt', lines[0])
        self.assertIn('full attention: ', lines[1])
        self.assertTrue(lines[3].startswith('| topk | dropped | select | PSNR dB | lowest | SSIM | sparsity | ms a step |'), lines[3])
        table, meanings = lines[3:7], lines[7:]
        self.assertEqual([line[:2] for line in table], ['| '] + ['|-'] + 2 * ['| '])
        self.assertEqual(meanings[0], '')
        timed = ['- beaten by:'] if '| beaten by |' in table[0] else []  # the column appears only if a row is slower than another row that is closer to full attention
        quartiles = ['- quartiles:'] if '| quartiles |' in table[0] else []  # the column appears only if the quartiles differ
        self.assertEqual([line[:line.index(':') + 1] for line in meanings[1:]],
                         ['- PSNR dB:', '- lowest:', '- SSIM:', '- sparsity:', '- ms a step:', *quartiles, '- denoising, s:', '- x full:', *timed])

    @needs_gnuplot
    def test_prints_the_table_even_if_drawing_fails(self):
        arguments = [*SMALL, *METHOD, '--limit', 1, '--topk', '0.5', '--no-rel-l1']
        for drawn in (['--plot', 'a.png'], ['--pictures', 'frames']):
            result = self.run_program('bench', 'quality', 'p.txt', *arguments, *drawn, **limited(3000))  # a limit in bytes that each picture exceeds
            self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
            self.assertIn('| topk |', result.stdout)
            self.assertIn('cannot write ', result.stderr)

    @needs_gnuplot
    def test_refuses_a_chart_without_rows_before_it_makes_videos(self):
        arguments = [*SMALL, '--steps', 20, '--limit', 1, '--no-rel-l1', '--timed-steps', 2, '--json']
        cached = ['--topk', 0.5, '--cache', 'steps:10,steps:15']
        result = self.bench(*arguments, *cached, '--plot', 'a.png')
        self.assertEqual(result.returncode, 2)
        self.assertIn('--plot a.png would show nothing: every row has a cache, and with --timed-steps 2 no row with a cache is timed', result.stderr)
        self.assertNotIn('rows', json.loads(result.stdout))
        self.assertNotIn('a.png', self.names())
        warning = 'with --timed-steps 2 no row with a cache is timed: timing a cache takes the 20 steps of a whole video, because a few do not show how many are reused'
        result = self.succeed(self.bench(*arguments, *cached))
        self.assertEqual(json.loads(result.stdout)['warnings'], [warning])
        self.assertEqual([row['denoise_seconds'] for row in json.loads(result.stdout)['rows']], [None, None])
        result = self.succeed(self.bench(*arguments, '--topk', 0.5, '--cache', '0,steps:10', '--plot', 'a.png'))
        self.assertEqual(json.loads(result.stdout)['warnings'], [warning])
        self.assertIn('a.png', self.names())

    def test_measures_a_profile_and_refuses_one_of_another_model(self):
        self.succeed(self.run_program('tune', '-m', MODEL, '-p', 'a dog', '--device', 'cpu', '--steps', 2, '--samples', 1, '--videos', 0, '--budget', '60s', '--quiet', '-o', 'own.yaml'))
        rows = self.report(*SMALL, *METHOD, '--limit', 1, '--topk', 0.5, '--profile', 'own.yaml', '--timed-steps', 0)['rows']
        self.assertEqual([(row['topk'], row['profile'], row['similarity']) for row in rows], [(0.5, None, -0.1), (None, 'own.yaml', None)])
        self.fail_with(self.bench('-m', TINY, '--device', 'cpu', '--profile', 'own.yaml'), 2, '--profile own.yaml', 'another model')
        self.fail_with(self.bench(*SMALL, '--profile', 'own.yaml,none.yaml'), 2, 'none.yaml')
        self.fail_with(self.bench(*SMALL, '--profile', 'own.yaml', '-o', 'own.yaml'), 2, '--profile', 'same file')

    def test_refuses_a_model_without_weights_before_anything_runs(self):
        model = self.copy_of_the_model()
        (model / 'vae' / 'diffusion_pytorch_model.safetensors').unlink()
        self.fail_with(self.bench('--device', 'cpu', '-m', model, '--steps', 1000, '--quiet', '-o', 'a.md'), 2, 'vae')
        shutil.rmtree(model)
        self.assertEqual(self.names(), ['p.txt'])

    def test_warns_of_options_without_effect(self):
        result = self.bench(*SMALL, '--limit', 1, '--no-rel-l1', '--topk', 0.5, '--dropped', 'none', '--cell', 16, '--timed-steps', 0, '--plot', 'a.png', '--cfg-scale-2', 2, '--json')
        warnings = ['--cell 16 has no effect without means for dropped blocks', '--plot has no effect with --timed-steps 0: there are no times to draw',
                    '--cfg-scale-2 2 has no effect for a model with one transformer']
        self.warn_with(result, *warnings)
        self.assertEqual(json.loads(result.stdout)['warnings'], warnings)
        self.assertNotIn('a.png', self.names())

    def test_refuses_wrong_arguments(self):
        (self.folder / 'empty.txt').write_text('# nothing\n')
        (self.folder / 'rows.csv').write_text('prompt,steps\na dog,3\n')
        (self.folder / 'no.safetensors').write_text('')
        for prompts, arguments, words in (
                ('none.txt', [], ['none.txt', 'no such file']), ('empty.txt', [], ['empty.txt', 'no row']), ('rows.csv', [], ['rows.csv:2', 'steps']), ('p.webm', [], ['p.webm', '.txt']),
                ('p.txt', ['--topk', '0.5,2'], ['--topk 2 is out of range']), ('p.txt', ['--error', '0'], ['--error']), ('p.txt', ['--dropped', 'man'], ['did you mean mean']),
                ('p.txt', ['--dropped', 'none', '--select', 'error'], ['--dropped none and --select error exclude each other']),
                ('p.txt', ['--size', '60x64'], ['--width 60']), ('p.txt', ['--frames', 6], ['--frames 6']), ('p.txt', ['--limit', 0], ['--limit']),
                ('p.txt', ['--plot', 'a.jpg'], ['a.jpg']), ('p.txt', ['--pictures', 'rows.csv'], ['--pictures', 'this is not a folder']),
                ('p.txt', ['--pictures', 'p.txt'], ['--pictures', 'same file']),
                ('p.txt', ['--pictures', 'none/f'], ['none']), ('p.txt', ['-o', 'p.txt'], ['same file']), ('p.txt', ['--judge', 'no.safetensors'], ['no.safetensors']),
                ('p.txt', ['--format', 'cvs'], ['did you mean csv']), ('p.txt', ['--token-order', 'hilbret'], ['did you mean hilbert'])):
            with self.subTest(prompts=prompts, arguments=arguments):
                self.fail_with(self.bench(*SMALL, *arguments, prompts=prompts), 2, *words)
        (self.folder / 'dog.txt').write_text('a dog\n')
        self.fail_with(self.bench(*SMALL, '--judge', ROOT / 'assets' / 'tiny-training' / 'judge.safetensors', prompts='dog.txt'), 2, '--judge', 'no prompt')
        self.fail_with(self.run_program('bench', 'quality'), 2, 'PROMPTS')
        self.assertEqual(self.names(), ['dog.txt', 'empty.txt', 'no.safetensors', 'p.txt', 'rows.csv'])

    def test_interrupt_writes_the_report_but_nothing_else(self):
        arguments = ['p.txt', '--device', 'cpu', '-m', MODEL, '--steps', 1000, '--report', 'r.json', '-o', 'a.md', '--plot', 'a.png', '--pictures', 'frames']
        process, terminal = self.start_program('bench', 'quality', *arguments)
        self.assertIn('/4000', self.read_until(terminal, '/4000'))
        process.send_signal(signal.SIGINT)
        errors = self.read_until(terminal, None)
        self.assertEqual(process.wait(timeout=60), 130, errors)
        self.assertIn('remedy', errors)
        self.assertEqual(self.names(), ['p.txt', 'r.json'])
        self.assertEqual(json.loads((self.folder / 'r.json').read_text())['exit']['state'], 'interrupted')


if __name__ == '__main__':
    unittest.main()
