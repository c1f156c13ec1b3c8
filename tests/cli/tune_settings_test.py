"""Tests `tune` when it searches for complete settings: what it finds for a lowest PSNR or a longest time, how an interrupted search continues, and how its profile is
applied."""
import json
import re
import signal
import subprocess
import unittest

from support import PROGRAM, PROMPT, ROOT, CommandLineTest, wait_until


def write_times(path, full=508, quantized=325, sparse=lambda topk: 200 + 120 * topk):
    """Writes a made-up report of `bench pipeline` for a large model. The arguments are milliseconds for a step with full, quantized and sparse attention."""
    row = {'stage': 'step', 'cache': None, 'weights': 'auto', 'token_order': 'hilbert', 'topk': None, 'cdf': None, 'error_bound': None, 'dropped': None, 'select': None,
           'cell': None}
    rows = [row | {'mode': 'full', 'ms': full}, row | {'mode': 'quantized', 'ms': quantized}]
    rows += [row | {'mode': 'sparse', 'ms': sparse(topk), 'topk': topk, 'dropped': 'mean', 'select': 'error', 'cell': 16} for topk in (0.2, 0.3, 0.5, 0.7)]
    settings = {'layers': 30, 'model': 'large', 'dtype': 'bf16', 'frames': 49, 'width': 720, 'height': 480, 'tokens': 17776, 'batch': 2, 'steps': 2, 'seed': 42}
    path.write_text(json.dumps({'machine': {'name': 'a GPU', 'device': 'cuda'}, 'settings': settings, 'rows': rows}))


class Settings(CommandLineTest):
    """Searches for complete settings with the quality of the tiny model and the made-up times of write_times(), so that every search has the same result."""
    VIDEO = ['-m', ROOT / 'assets' / 'tiny', '--size', '128x128', '--frames', 9, '--steps', 20, '--device', 'cpu', '--threads', 1]
    # Videos of this size have few blocks, so sparse attention differs much from full attention.
    SEARCH = ['tune', *VIDEO, '-p', PROMPT, '-o', 'p.yaml', '--times', 't.json', '--budget', '10m', '--quiet', '--json']
    found = None  # (report, profile, other files) of whole_search()

    def setUp(self):
        super().setUp()
        write_times(self.folder / 't.json')
        (self.folder / 'one.txt').write_text(PROMPT + '\n')

    def search(self, *arguments):
        return json.loads(self.succeed(self.run_program(*self.SEARCH, *arguments)).stdout)

    def whole_search(self):
        """Returns the report of a search for a PSNR of at least 29 dB, and writes its profile to p.yaml. All tests share one search, because it is slow and always the same."""
        if Settings.found is None:
            report = self.search('--min-psnr', 29, '--heat-map', 'h.png')
            Settings.found = report, (self.folder / 'p.yaml').read_text(), self.names()
        (self.folder / 'p.yaml').write_text(Settings.found[1])
        return Settings.found[0]

    def settings_of(self, profile='p.yaml'):
        flow = re.search(r'^settings: {(.*)}$', (self.folder / profile).read_text(), re.M).group(1)
        return dict(item.split(': ', 1) for item in flow.split(', '))

    def test_fastest_setting_above_the_floor_is_found_and_fully_applied(self):
        report = self.whole_search()
        tune, (best, *others) = report['tune'], report['tune']['rows']
        self.assertTrue(tune['complete'] and tune['passed'])
        self.assertEqual(best['what'], 'tuned')
        self.assertGreaterEqual(best['psnr'], 29)
        self.assertNotIn('percentile', tune)
        self.assertEqual({row['what'] for row in others}, {'near', 'balanced', 'fast', 'exact'})
        holding = [row for row in others if row['what'] == 'exact' or row['psnr'] >= 29]
        self.assertLess(best['denoise_seconds'], min(row['denoise_seconds'] for row in holding) / 1.1)
        self.assertEqual(self.found[2], ['one.txt', 'p.yaml', 't.json'])
        settings = self.settings_of()
        self.assertEqual(settings, tune['settings'])
        self.assertLessEqual({'attention', 'cache', 'weights'}, settings.keys())
        # `bench quality --profile` must measure the same figures that the search found.
        quality = self.run_program('bench', 'quality', 'one.txt', *self.VIDEO, '--profile', 'p.yaml', '--times', 't.json', '--no-rel-l1', '--quiet', '--json')
        row, = json.loads(self.succeed(quality).stdout)['rows']
        for key in ('psnr', 'ssim', 'computed_steps', 'denoise_seconds'):
            self.assertAlmostEqual(row[key], best[key], 6, key)
        # `generate` and `batch` must apply the profile, too. Options on the command line override it.
        video = [*self.VIDEO, '-p', PROMPT, '--profile', 'p.yaml', '--quiet', '--json']
        made = json.loads(self.succeed(self.run_program('generate', *video, '-o', 'a.y4m')).stdout)
        self.assertEqual((made['attention']['mode'], made['cache']['rule']), (settings['attention'], settings['cache']))
        self.assertEqual(made['cache']['computed_steps'], best['computed_steps'])
        self.assertIn('profile p.yaml: ', made['preset']['text'])
        self.succeed(self.run_program('batch', 'one.txt', *self.VIDEO, '--profile', 'p.yaml', '--quiet', '--format', 'y4m', '-o', 'set'))
        self.assertEqual(next((self.folder / 'set').glob('*.y4m')).read_bytes(), (self.folder / 'a.y4m').read_bytes())
        other = json.loads(self.succeed(self.run_program('generate', *video, '-o', 'b.y4m', '--cache', 'steps:5')).stdout)
        self.assertEqual((other['attention']['mode'], other['cache']['rule']), (settings['attention'], 'steps:5'))
        self.assertIn('profile p.yaml, with --cache steps:5: ', other['preset']['text'])
        exact = json.loads(self.succeed(self.run_program('generate', *video, '-o', 'c.y4m', '--attention', 'full')).stdout)
        self.assertEqual((exact['attention']['mode'], exact.get('cache')), ('full', None))
        self.assertIn('--profile p.yaml has no effect with --attention full', exact['warnings'][0])

    def shown(self, *arguments):
        lines = self.succeed(self.run_program('config', 'show', *self.VIDEO, '-p', 'x', *arguments)).stdout.splitlines()
        return {line.split(': ')[0]: line.split(': ', 1)[1].split(' # ') for line in lines if ' # ' in line}

    def test_config_show_names_the_settings_of_a_profile(self):
        self.whole_search()
        text = (self.folder / 'p.yaml').read_text()
        (self.folder / 'q.yaml').write_text(re.sub('settings: {.*}', 'settings: {attention: sparse, topk: 0.25, dense_steps: 30%, cache: forecast:0.3, weights: auto}', text))
        (self.folder / 'c.yaml').write_text('profile: q.yaml\ntopk: 0.6\n')
        shown = self.shown('--profile', 'q.yaml')
        self.assertEqual([shown[key][0].strip() for key in ('topk', 'dense_steps', 'cache', 'attention')], ['0.25', '6', '"forecast:0.3"', '"sparse"'])
        self.assertEqual({shown[key][1] for key in ('topk', 'dense_steps', 'cache', 'attention', 'weights')}, {'profile q.yaml'})
        shown = self.shown('--config', 'c.yaml', '--cache', 0)
        self.assertEqual([shown[key][0].strip() for key in ('topk', 'dense_steps', 'cache')], ['0.6', '6', '"0"'])
        for name, settings, words in (('a', 'width: 64', 'settings.width is not an option'), ('b', 'topk: 7', 'topk is 7'), ('c', 'cache: [1]', 'is not a single value'),
                                      ('d', 'cache: often', 'cache often')):
            (self.folder / f'{name}.yaml').write_text(re.sub('settings: {.*}', f'settings: {{{settings}}}', text))
            self.fail_with(self.run_program('generate', *self.VIDEO, '-p', 'x', '--profile', f'{name}.yaml', '-o', 'a.mp4'), 2, f'{name}.yaml', words)

    def test_missed_floor_fails_and_a_lower_floor_resumes(self):
        (self.folder / 'p.yaml').touch()
        given = ['--cache', 0, '--topk', 0.5]  # without these options the search would reach 99 dB: with so few blocks, a small bound on each block's error computes all of them, which is exact on a CPU
        result = self.run_program(*self.SEARCH, '--min-psnr', 99, *given)
        self.assertEqual(result.returncode, 1, result.stderr)
        for words in ('p.yaml is not written: the best videos reach PSNR ', ' dB instead of --min-psnr 99', 'the best setting that was found is in p.missed.yaml; use it, or lower the goal'):
            self.assertIn(words, result.stderr)
        self.assertEqual(self.names(), ['one.txt', 'p.missed.yaml', 'p.yaml', 'p.yaml.search', 't.json'])
        self.assertEqual((self.folder / 'p.yaml').read_text(), '')
        self.assertEqual(self.settings_of('p.missed.yaml')['cache'], '0')
        tune = self.search('--min-psnr', 10, *given)['tune']
        self.assertGreater(tune['resumed_videos'], 0)
        self.assertEqual(self.names(), ['one.txt', 'p.missed.yaml', 'p.yaml', 't.json'])
        self.assertEqual(self.settings_of()['cache'], '0')

    def test_floor_of_a_percentile_says_how_sure_it_is(self):
        result = self.succeed(self.run_program(*(word for word in self.SEARCH if word != '--json'), '--min-psnr', 10, '--percentile', 5, '--cache', 0, '--topk', 0.5))
        self.assertIn('0 of 1 video are below 10 dB: it is 5% sure that at most 5% of other such prompts are; --videos 59 makes it 95% sure if none is below', result.stdout)
        (self.folder / 'p.yaml').unlink()
        tune = self.search('--min-psnr', 10, '--percentile', 5, '--cache', 0, '--topk', 0.5)['tune']
        self.assertEqual({**tune['percentile'], 'sure': round(tune['percentile']['sure'], 6)}, {'percentile': 5, 'prompts': 1, 'below': 0, 'sure': 0.05})
        result = self.run_program(*self.SEARCH, '--min-psnr', 99, '--percentile', 5, '--cache', 0, '--topk', 0.5)
        self.fail_with(result, 1, 'the best videos reach in percentile 5 ', ' dB instead of --min-psnr 99', warning='the tiny model was trained on 33 frames')

    def test_most_faithful_setting_within_the_seconds_is_found(self):
        tune = self.search('--at-most', 5)['tune']
        best, near = tune['rows'][0], next(row for row in tune['rows'] if row['what'] == 'near')
        self.assertLessEqual(best['denoise_seconds'], 5)
        self.assertGreaterEqual(best['psnr'], near['psnr'])
        result = self.run_program(*self.SEARCH, '--at-most', 0.01, '--cache', 0, '--topk', 0.5)
        self.fail_with(result, 1, 'the fastest setting that was compared takes', '--at-most 0.01', warning='the tiny model was trained on 33 frames')

    def test_time_of_a_block_error_bound_follows_from_the_computed_blocks(self):
        given = ['--cache', 0, '--dense-steps', '20%', '--weights', 'auto']
        tune = self.search('--at-most', 6.42, '--block-error', 0.1, *given)['tune']
        best, settings = tune['rows'][0], {'attention': 'sparse', 'block_error': '0.1', 'cache': '0', 'dense_steps': '20%', 'weights': 'auto'}
        self.assertEqual((tune['settings'], self.settings_of()), (settings, settings))
        quality = self.run_program('bench', 'quality', 'one.txt', *self.VIDEO, '--profile', 'p.yaml', '--block-error', '0.1', '--dense-steps', '20%', '--times', 't.json',
                                   '--no-rel-l1', '--quiet', '--json')
        rows = json.loads(self.succeed(quality).stdout)['rows']
        self.assertEqual([row['block_error'] for row in rows], [0.1] * len(rows))
        for row in rows:
            for key in ('psnr', 'denoise_seconds'):
                self.assertAlmostEqual(row[key], best[key], 6, key)
        share = 1 - row['sparsity'] * 20 / 16  # share of blocks that the 16 sparse steps compute; the other 4 steps compute every block
        self.assertLess(share, 1)
        times = [(0.2, 224), (0.3, 236), (0.5, 260), (0.7, 284), (1, 325)]
        for (below, less), (above, more) in zip(times, times[1:]):
            if below <= share <= above:
                self.assertAlmostEqual(best['denoise_seconds'], (4 * 325 + 16 * (less + (share - below) / (above - below) * (more - less))) / 1000, 3)
        made = json.loads(self.succeed(self.run_program('generate', *self.VIDEO, '-p', PROMPT, '--profile', 'p.yaml', '--quiet', '--json', '-o', 'a.y4m')).stdout)
        self.assertIn('block error 0.1', made['preset']['text'])

    def test_given_options_are_not_searched(self):
        tune = self.search('--min-psnr', 10, '--cache', 'forecast:0.2', '--topk', 0.5, '--dense-steps', 2)['tune']
        settings = tune['settings']
        self.assertEqual(settings['cache'], 'forecast:0.2')
        if settings['attention'] == 'sparse':
            self.assertEqual((settings['topk'], settings['dense_steps']), ('0.5', '2'))

    def test_search_out_of_time_and_then_killed_resumes_to_the_same_profile(self):
        whole = self.whole_search()
        text = (self.folder / 'p.yaml').read_text()
        (self.folder / 'p.yaml').unlink()
        for seconds in (4, 8, 16, 32):  # tries longer budgets until one suffices for some videos of the search, but not for all
            result = self.run_program(*self.SEARCH, '--min-psnr', 29, '--budget', f'{seconds}s')
            self.assertIn('run the same command again to continue', (result.stderr + result.stdout).replace('\n', ' '))
            if 'p.yaml.search' in self.names():
                break
        self.assertIn('p.yaml.search', self.names())
        state = self.folder / 'p.yaml.search'
        before = state.read_bytes()
        process = subprocess.Popen([PROGRAM, *map(str, [*self.SEARCH, '--min-psnr', 29])], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: state.exists() and state.read_bytes() != before and b'forecast' in state.read_bytes(), process, seconds=300)
        process.kill()
        process.wait()
        self.assertEqual(process.returncode, -signal.SIGKILL)
        again = self.search('--min-psnr', 29)
        self.assertGreater(again['tune']['resumed_videos'], 0)
        self.assertLess(again['tune']['resumed_videos'], again['tune']['videos'])
        self.assertEqual(again['tune']['videos'], whole['tune']['videos'])
        self.assertEqual((self.folder / 'p.yaml').read_text(), text)
        self.assertNotIn('p.yaml.search', self.names())

    def test_heat_map_has_no_effect_with_times(self):
        report = self.whole_search()
        self.assertIn('--heat-map has no effect with --times, which holds no times of single heads', report['warnings'])
        self.assertNotIn('h.png', self.found[2])

    def test_search_without_times_measures_steps_and_heads(self):
        arguments = ['tune', *self.VIDEO, '-p', PROMPT, '-o', 'p.yaml', '--size', '192x192', '--cache', 'forecast:0.2', '--topk', 0.5, '--dense-steps', 0, '--min-psnr', 5,
                     '--samples', 1, '--quiet', '--json', '--budget', '10m']
        tune = json.loads(self.run_program(*arguments).stdout)['tune']
        self.assertGreater(tune['full_denoise_seconds'], 0)
        if tune['by_head']:
            self.assertGreater(tune['step_speedup'], 1)
            self.assertIn('layers:', (self.folder / 'p.yaml').read_text())
        else:
            self.assertIn(tune['no_heads'], ('every block is computed', 'no setting reaches the goal', 'within the bounds, heads leave out no more blocks',
                                             'steps with blocks for each head are no faster', 'videos with blocks for each head miss the goal'))


if __name__ == '__main__':
    unittest.main()
