"""Tests that no measured setting beats a preset of configs/, and that presets keep the promises of configs/README.md.

assets/charts/presets*.json are --report files of `bench quality PROMPTS --preset near,balanced,fast --topk ... --dense-steps ... --cache ... --modes
quantized,sparse --times PIPELINE.json`, without each row's `prompts`. The times are those of a model of configs/. The test of these files is skipped if there are
none.
"""
import json
import math
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ON_CHOSEN = {'near': (42, 39), 'balanced': (40, 36), 'fast': (35, 28)}  # PSNR on the prompts that presets were chosen on: mean, lowest
PROMISES = {'near': (45, 38), 'balanced': (43, 34), 'fast': (37, 28)}  # PSNR on held-out prompts, 512x512, 50 steps: mean, 5th percentile
DENSE = 0.2  # with sparse attention, at least this share of the steps must be dense


def presets_of(name):
    """Returns the presets of a file in configs/: {preset: {option: value}}."""
    text = (ROOT / 'configs' / name).read_text().split('\npresets:')[1].split('\nfew_steps:')[0]
    return {preset: dict(item.split(': ', 1) for item in options.split(', ')) for preset, options in re.findall(r'^  (\w+): {(.*)}$', text, re.M)}


def as_row(options, steps):
    """Returns the settings of a preset as the fields of a report's row."""
    mode = options.get('attention', 'sparse')
    dense = options.get('dense_steps', '0')
    return {'mode': mode, 'topk': float(options['topk']) if mode == 'sparse' else None, 'cache': options.get('cache'), 'weights': options.get('weights', 'auto'),
            'dense_steps': math.ceil(float(dense[:-1]) * steps / 100) if dense.endswith('%') else int(dense)}


def obeys_the_rule(row, steps):
    return row['mode'] != 'sparse' or row['dense_steps'] >= DENSE * steps


def beats(row, other):
    return all(row[key] > other[key] for key in ('psnr', 'psnr_lowest')) and row['denoise_seconds'] < other['denoise_seconds']


def faults(report, presets):
    """Returns a sentence for each fault: a preset without a row, one measured with other settings, below its promised PSNR, with too few dense steps, or beaten by
    another row."""
    steps = report['settings']['steps']
    rows = [row for row in report['rows'] if all(row[key] is not None for key in ('psnr', 'psnr_lowest', 'denoise_seconds'))]
    found = []
    for name, promise in ON_CHOSEN.items():
        own = next((row for row in rows if row['preset'] == name), None)
        if own is None:
            found.append(f'{name} has no row')
            continue
        for key, value in as_row(presets[name], steps).items():
            if own[key] != value:
                found.append(f'{name} was measured with {key} {own[key]}, and is {value}')
        for key, least in zip(('psnr', 'psnr_lowest'), promise):
            if own[key] < least:
                found.append(f'{name} promises {key} {least}, and has {own[key]}')
        if not obeys_the_rule(own, steps):
            found.append(f'{name} has sparse steps among the first fifth')
        found += [f'{name} is beaten by {row["name"]}' for row in rows if obeys_the_rule(row, steps) and beats(row, own)]
    return found


class Presets(unittest.TestCase):
    def report(self, changes=(), more=()):
        """Returns a report with made-up figures. It has no fault unless `changes` of a preset's row or the additional rows `more` cause one."""
        figures = {'near': (43, 40, 3), 'balanced': (41, 37, 2), 'fast': (36, 29, 1)}
        rows = [{'name': f'preset={name}', 'preset': name, 'psnr': psnr, 'psnr_lowest': lowest, 'denoise_seconds': seconds, **as_row(presets_of('tiny.yaml')[name], 50)}
                for name, (psnr, lowest, seconds) in figures.items()]
        for name, change in dict(changes).items():
            next(row for row in rows if row['preset'] == name).update(change)
        balanced = rows[1] | {'preset': None}
        return {'settings': {'steps': 50}, 'rows': rows + [balanced | row for row in more]}

    def check(self, expected, **report):
        self.assertEqual(faults(self.report(**report), presets_of('tiny.yaml')), expected)

    def test_check_finds_broken_promises_broken_rules_and_missing_measurements(self):
        self.check([])
        self.check(['near promises psnr 42, and has 41.9', 'fast promises psnr_lowest 28, and has 27'], changes={'near': {'psnr': 41.9}, 'fast': {'psnr_lowest': 27}})
        self.check(['balanced was measured with topk 0.9, and is ' + presets_of('tiny.yaml')['balanced']['topk']], changes={'balanced': {'topk': 0.9}})
        self.check(['fast has no row'], changes={'fast': {'denoise_seconds': None}})
        few = self.report(changes={'balanced': {'dense_steps': 9}})
        self.assertIn('balanced has sparse steps among the first fifth', faults(few, presets_of('tiny.yaml')))

    def test_check_finds_a_row_that_beats_a_preset_in_everything(self):
        better = {'name': 'other', 'psnr': 41.5, 'psnr_lowest': 37.5, 'denoise_seconds': 1.9}
        self.check(['balanced is beaten by other'], more=[better])
        for worse in ({'psnr': 40.5}, {'psnr_lowest': 36.5}, {'denoise_seconds': 2.1}, {'dense_steps': 9}, {'psnr': None}):
            self.check([], more=[better | worse])

    def test_measured_tables_keep_the_promises(self):
        tables = sorted((ROOT / 'assets' / 'charts').glob('presets*.json'))
        if not tables:
            self.skipTest('no assets/charts/presets*.json is there: nothing says whether the presets stand on the frontier')
        for table in tables:
            with self.subTest(table.name):
                report = json.loads(table.read_text())
                names = re.findall(r'random weights of (\S+\.yaml)', ' '.join(report['settings']['times']))
                self.assertTrue(names, 'the times are of no model of configs/')
                for name in names:
                    self.assertEqual(faults(report, presets_of(name)), [])

    def test_presets_of_the_tiny_model_keep_their_promises_on_prompts_that_no_choice_saw(self):
        table = json.loads((ROOT / 'assets' / 'charts' / 'held_out.json').read_text())['rows']
        for name, (mean, percentile) in PROMISES.items():
            with self.subTest(name):
                row = next(row for row in table if row['preset'] == name and (row['size'], row['steps'], row['image']) == ('512x512', 50, False))
                self.assertEqual(row['videos'], 100)
                self.assertEqual({key: row[key] for key in ('mode', 'topk', 'cache', 'dense_steps')},
                                 {key: as_row(presets_of('tiny.yaml')[name], 50)[key] for key in ('mode', 'topk', 'cache', 'dense_steps')})
                self.assertGreaterEqual(row['psnr'], mean)
                self.assertGreaterEqual(row['psnr_p5'], percentile)

    def test_page_states_the_promises(self):
        page = (ROOT / 'configs' / 'README.md').read_text()
        said = {name: (int(mean), int(percentile)) for name, mean, percentile in re.findall(r'^\| `(\w+)`.*\| (\d+) dB, (\d+) \|$', page, re.M)}
        self.assertEqual(said, PROMISES)


if __name__ == '__main__':
    unittest.main()
