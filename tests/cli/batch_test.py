"""Tests `batch`: prompt sets, rows that fail while the other rows succeed, and what the program prints."""
import json
import os
import pty
import shutil
import subprocess
import unittest

from batch_support import BatchTest
from support import FAMILY, MODEL, PROGRAM, PROMPT, limited_memory

ASKED, MADE = FAMILY.even_latents


class PromptSets(BatchTest):
    def test_every_format_gives_the_same_videos(self):
        sets = {'set.txt': '# two prompts\na red circle\n\n  a blue star  \r\n',
                'set.jsonl': '{"prompt": "a red circle"}\n\n{"prompt": "a blue star", "seed": 43}\n',
                'set.csv': '\ufeffprompt,seed\r\n"a red circle",\r\na blue star,43\r\n',
                'set.yaml': '- a red circle\n- prompt: a blue star\n  seed: 43\n'}
        for name, text in sets.items():
            self.succeed(self.batch(self.write(name, text), name + '.out', '--steps', '2'))
            self.assertEqual(self.videos(name + '.out'), self.videos('set.txt.out'), name)
        self.assertEqual(sorted(self.videos('set.txt.out')), ['0000-a-red-circle.mp4', '0001-a-blue-star.mp4'])

    def test_row_makes_the_same_video_as_generate(self):
        self.succeed(self.batch(self.write('set.csv', f'prompt,seed,steps,cfg_scale,frames,topk\n{PROMPT},7,3,4,{MADE},0.3\n')))
        self.succeed(self.generate('--seed', '7', '--steps', '3', '--cfg-scale', '4', '--frames', MADE, '--topk', '0.3', '--threads', '1', '-o', 'one.mp4'))
        self.assertEqual((self.folder / 'one.mp4').read_bytes(), (self.folder / 'out' / '0000-a-red-circle-moving-to-the-right-on-a-blue-backg.mp4').read_bytes())

    def test_row_overrides_the_command_line_and_seeds_count_up(self):
        self.succeed(self.batch(self.write('set.jsonl', '{"prompt": "a"}\n{"prompt": "a", "steps": 3}\n{"prompt": "a", "seed": 5}\n'),
                                'out', '--steps', '2', '--seed', '100'))
        lines = sorted(self.manifest(), key=lambda line: line['row'])
        self.assertEqual([line['seed'] for line in lines], [100, 101, 5])
        self.assertEqual([line['recipe']['steps'] for line in lines], [2, 3, 2])

    def test_reads_a_set_from_standard_input(self):
        objects = '\n{"prompt": "a red circle"}\n{"prompt": "a blue star"}\n'
        for text in ('# two\na red circle\na blue star\n', objects, '\ufeff' + objects,
                     '\ufeffprompt,seed\na red circle,42\na blue star,43\n', '# a list\n- a red circle\n- prompt: a blue star\n'):
            with self.subTest(text):
                report = self.set_report('-', 'out', '--steps', 1, input=text, encoding='utf-8')
                self.assertEqual((report['rows'], report['rendered'] + report['skipped']), (2, 2))
                self.assertEqual(self.manifest()[0]['place'], 'standard input:2')
        self.assertEqual(len(list((self.folder / 'out').glob('*.mp4'))), 2)
        self.fail_with(self.batch('-', 'other', input='{"prompt": "a", "stpes": 3}'), 2, 'standard input:1', 'stpes', 'did you mean steps')
        for header, words in (('prompt,sead', ('sead', 'did you mean seed?')), ('promt', ('promt', 'did you mean prompt?')),
                              ('prompt\tseed', ('tab', 'commas'))):
            self.fail_with(self.batch('-', 'other', input=f'{header}\na red circle\n'), 2, 'standard input:1', *words, '--input-format')
        self.fail_with(self.batch('-', 'other', input=''), 2, 'standard input', 'no row')
        self.fail_with(self.batch('-', 'other', '--input-format', 'csv', input='a red circle\n'), 2, 'standard input:1', 'the field "a red circle" is unknown')
        self.fail_with(self.batch('-', 'other', '--input-format', 'xls', input=''), 2, '--input-format xls', 'jsonl')
        self.set_report('-', 'lines', '--steps', 1, '--frames', 1, '--input-format', 'txt', input='- a red circle\nprompt,seed\n')
        self.assertEqual([line['recipe']['prompt'] for line in self.manifest('lines')], ['- a red circle', 'prompt,seed'])

    def test_refuses_sets_that_never_end(self):
        os.mkfifo(self.folder / 'set.txt')
        (self.folder / 'endless.jsonl').symlink_to('/dev/zero')
        for name in ('set.txt', 'endless.jsonl'):
            self.fail_with(self.batch(name, timeout=20, **limited_memory(4 << 30)), 2, name, 'a device or a pipe', '- for standard input')
        self.write('large.yaml', '#' * (4 << 20) + '\n')
        self.fail_with(self.batch('large.yaml'), 2, 'large.yaml: is larger than 4 MiB')
        (self.folder / 'out').mkdir()
        (self.folder / 'out' / 'manifest.1.jsonl').symlink_to('/dev/zero')
        self.write('one.txt', 'a red ball\n')
        for arguments in (self.arguments('one.txt', 'out'), ['batch', '--status', 'out']):
            self.fail_with(self.run_program(*arguments, timeout=20, **limited_memory(4 << 30)), 2, 'manifest.1.jsonl', 'a device or a pipe')

    def test_refuses_a_wrong_file_before_it_makes_anything(self):
        for name, text, words in (
                ('a.jsonl', '{"prompt": "a"}\n{"prompt": "a", "stpes": 3}\n', ['a.jsonl:2', 'stpes', 'did you mean steps']),
                ('b.csv', 'prompt,sedd\na,1\n', ['b.csv:1', 'sedd', 'did you mean seed']),
                ('c.yaml', '- prompt: a\n  widht: 64\n', ['c.yaml:2', 'widht', 'did you mean width']),
                ('d.csv', 'prompt,seed\na,b,c\n', ['d.csv:2', '3 fields']),
                ('e.csv', 'prompt\n"a\n', ['e.csv:2', 'quote']),
                ('f.jsonl', '{"prompt": "a", "steps": "many"}\n', ['f.jsonl:1', 'steps', 'whole number']),
                ('g.jsonl', '{"prompt": "a", "topk": 0.5, "cdf": 0.9}\n', ['g.jsonl:1', 'topk', 'cdf']),
                ('h.jsonl', '{"prompt": "a"\n', ['h.jsonl:1', 'JSON']),
                ('i.yaml', '- a\n- [b\n', ['i.yaml:3', 'YAML']),
                ('j.yaml', 'prompt: a\n', ['j.yaml', 'list']),
                ('k.jsonl', '{"prompt": "a", "threads": 3}\n', ['k.jsonl:1', 'threads', 'whole set']),
                ('l.jsonl', '{"prompt": "a", "output": "../../a.mp4"}\n', ['l.jsonl:1', 'output', 'file name']),
                ('m.jsonl', '{"prompt": "a", "output": "x.mp4"}\n{"prompt": "b", "output": "X.mp4"}\n', ['m.jsonl:1', 'm.jsonl:2']),
                ('n.txt', '# nothing\n', ['n.txt', 'no row']),
                ('o.pdf', 'a', ['o.pdf', '.jsonl'])):
            self.fail_with(self.batch(self.write(name, text), 'out-' + name), 2, *words)
            self.assertFalse((self.folder / ('out-' + name)).exists(), name)

    def test_never_writes_over_files_that_it_reads(self):
        model = self.copy_of_the_model()
        files = {'set.txt': 'a\n', 'my.yaml': 'steps: 2\n', 'profile.yaml': 'x: 1\n', 'prompt.txt': 'a\n', 'weights.yaml': 'x: 1\n',
                 'latents.safetensors': 'x', 'from.mp4': 'x', 'own.jsonl': '{"prompt": "a", "init_latents": "latents.safetensors"}\n',
                 'broken.jsonl': '{"prompt": "a", "profile": "profile.yaml", "topk": 0.5}\n',
                 'sheet.jsonl': '{"prompt": "a"}\n{"prompt": "b", "contact_sheet": "sheet.png"}\n', 'sheet.png': 'x',
                 'save.jsonl': '{"prompt": "a", "save_latents": "latents.safetensors"}\n', 'text.jsonl': '{"prompt_file": "prompt.txt"}\n'}
        for name, text in files.items():
            self.write(name, text)
        before = {path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}
        for option, name in (('--config', 'my.yaml'), ('--profile', 'profile.yaml'), ('--prompt-file', 'prompt.txt'), ('--from', 'from.mp4'),
                             ('--init-latents', 'latents.safetensors'), ('--random-weights', 'weights.yaml')):
            result = self.run_program('batch', 'set.txt', '-o', 'out', option, name, '--report', name)
            self.assertEqual(result.returncode, 2, result.stderr)
        for set_file, report in (('set.txt', 'set.txt'), ('own.jsonl', 'latents.safetensors'), ('broken.jsonl', 'profile.yaml'), ('sheet.jsonl', 'out/sheet.png'), ('text.jsonl', 'prompt.txt'), ('set.txt', 'out/manifest.0.jsonl')):
            self.fail_with(self.batch(set_file, 'out', '--report', report), 2, 'are the same file', report)
        for name in ('manifest.0.jsonl', 'manifest.1.jsonl'):
            (model / name).write_text('')
            for given in (['--status', model], [self.write('latents.jsonl', json.dumps({'prompt': 'a', 'save_latents': name}) + '\n'), '-o', model]):
                self.fail_with(self.run_program('batch', *given, '--quiet', *([] if given[0] != '--status' else ['--report', model / name])), 2, 'are the same file', name)
            (model / name).unlink()
        (self.folder / 'latents.jsonl').unlink()
        self.fail_with(self.batch('save.jsonl', '.', '--init-latents', 'latents.safetensors'), 2, 'are the same file', 'save.jsonl:1')
        self.fail_with(self.batch('own.jsonl', model, '--report', model / '0000-a.mp4'), 2, 'are the same file', 'own.jsonl:1')
        self.assertEqual({path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}, before)
        self.assertFalse((self.folder / 'out').exists())

    def test_rows_cannot_read_or_write_files_outside_their_folders(self):
        secret = self.write('secret.txt', 'a secret circle\n')
        (self.folder / 'sets').mkdir()
        (self.folder / 'sets' / 'link.txt').symlink_to(secret)
        self.write('sets/mine.txt', 'a blue star\n')
        for field, values in (('save_latents', ('../secret.txt', str(secret), 'below/a.safetensors')), ('contact_sheet', ('../secret.png', str(secret))),
                              ('prompt_file', ('../secret.txt', str(secret)))):
            for value in values:
                file = self.write('sets/set.jsonl', json.dumps({'prompt': 'a', field: value} if field != 'prompt_file' else {field: value}) + '\n')
                self.fail_with(self.batch(file, 'out'), 2, 'set.jsonl:1', f'{field} "{value}" is not a plain file name', 'without a folder')
        self.assertFalse((self.folder / 'out').exists())
        result = self.batch(self.write('sets/set.csv', 'prompt_file\nlink.txt\nsecret.txt\nmine.txt\n'), 'out', '--steps', 1, '--frames', 1)
        self.assertEqual(result.returncode, 1)
        self.assertIn('is a link', result.stderr)
        self.assertEqual([(line['row'], line['state']) for line in self.manifest()], [(0, 'failed'), (1, 'failed'), (2, 'done')])
        self.assertEqual(list(self.videos()), ['0002-a-blue-star.mp4'])
        self.assertNotIn('secret circle', (self.folder / 'out' / 'manifest.0.jsonl').read_text() + result.stderr)
        self.write('set.jsonl', '{"prompt": "a", "contact_sheet": "secret.png", "save_latents": "b.safetensors"}\n')
        self.succeed(self.batch('set.jsonl', 'sheets', '--steps', 1, '--frames', 1))
        self.assertEqual(sorted(self.videos('sheets')), ['0000-a.mp4', 'b.safetensors', 'secret.png'])
        self.assertEqual(secret.read_text(), 'a secret circle\n')

    def test_row_without_a_prompt_fails_and_names_the_missing_field(self):
        result = self.batch(self.write('set.csv', 'prompt,seed\n,7\na,8\n').name, 'out', '--steps', 1, '--frames', 1)
        self.assertEqual(result.returncode, 1)
        cause, remedy = 'set.csv:2: the row has no prompt', '  remedy: fill in its field prompt, or give all such rows one with -p "..."'
        self.assertEqual(result.stderr.splitlines()[:2], [cause, remedy])
        self.assertEqual(self.set_report('set.csv', 'out', '--steps', 1, '--frames', 1, '-p', 'b')['rendered'], 1)

    def test_options_of_one_video_are_refused_for_a_set(self):
        file = self.prompts(1)
        config = self.write('my.yaml', 'contact_sheet: sheet.png\n')
        self.fail_with(self.batch(file, 'out', '--config', config), 2, 'contact_sheet', 'row')
        self.fail_with(self.batch(file, 'out', '--share', '4/4'), 2, '--share 4/4')
        self.fail_with(self.run_program('batch', file), 2, '-o DIR')

    def test_checks_threads_before_it_makes_anything(self):
        file = self.write('set.txt', 'a\n')
        self.fail_with(self.run_program('batch', file, '-o', 'out', '-m', MODEL, '--threads', '0'), 2, '--threads 0')
        self.assertFalse((self.folder / 'out').exists())

    def test_row_renders_a_recipe_again(self):
        self.succeed(self.generate('--seed', '5', '--steps', '3', '--frames', MADE, '--threads', '1', '-o', 'one.mp4'))
        self.succeed(self.batch(self.write('set.jsonl', '{"prompt": "a"}\n{"from": "one.mp4", "output": "again.mp4"}\n{"from": "one.mp4", "seed": 6}\n'), 'out', '--frames', MADE))
        self.assertEqual((self.folder / 'out' / 'again.mp4').read_bytes(), (self.folder / 'one.mp4').read_bytes())
        self.assertEqual([line['seed'] for line in sorted(self.manifest(), key=lambda line: line['row'])], [42, 5, 6])

    def test_paths_in_rows_are_relative_to_the_folder_of_the_set(self):
        (self.folder / 'sets').mkdir()
        self.succeed(self.generate('--seed', '5', '--threads', '1', '-o', 'sets/one.mp4'))
        self.write('sets/set.jsonl', json.dumps({'from': 'one.mp4', 'output': 'again.mp4'}) + '\n')
        self.succeed(self.batch('sets/set.jsonl', 'out'))
        self.assertEqual((self.folder / 'out' / 'again.mp4').read_bytes(), (self.folder / 'sets' / 'one.mp4').read_bytes())
        self.write('set.jsonl', json.dumps({'from': str(self.folder / 'sets' / 'one.mp4'), 'output': 'absolute.mp4'}) + '\n')
        self.succeed(self.batch('set.jsonl', 'out'))

    def test_errors_name_the_place_of_a_bad_value(self):
        file = self.write('set.yaml', '- prompt: a\n  width: 100\n- prompt: b\n  topk: 1.5\n- {prompt: c, model: nowhere}\n')
        result = self.batch(file.name)
        self.assertEqual(result.returncode, 1)
        causes = result.stderr.splitlines()[:-2:2]
        self.assertEqual(len(causes), 3, result.stderr)
        for place in ('set.yaml:2:10: width 100 is', 'set.yaml:4:9: topk is 1.5', 'set.yaml:5:22: model: nowhere: there is no file or folder'):
            self.assertTrue(any(cause.startswith(place) and cause.count(place) == 1 for cause in causes), result.stderr)
        config = self.write('my.yaml', 'init_latents: missing.safetensors\n').name
        self.assertIn('set.txt:1: my.yaml:1:15: init_latents: missing.safetensors: cannot be opened',
                      self.batch(self.write('set.txt', 'a\n').name, 'out', '--config', config).stderr)

    def test_warns_once_of_options_without_effect_in_all_rows(self):
        file = self.write('set.yaml', '- prompt: a\n- prompt: b\n- {prompt: c, topk: 0.3}\n')
        result = self.succeed(self.batch(file.name, 'out', '--attention', 'full', '--format', 'y4m', '--crf', 20, '--json'))
        warnings = ['set.yaml:1 and 2 more rows: --crf 20 has no effect on .y4m: it is for .mp4, .mov, .mkv and .webm',
                    'set.yaml:3: topk 0.3 has no effect with --attention full, which computes every block']
        self.assertEqual(result.stderr.splitlines(), [f'warning: {warning}' for warning in warnings])
        self.assertEqual(json.loads(result.stdout)['warnings'], warnings)

    def test_each_row_chooses_its_own_preset(self):
        file = self.write('set.csv', 'prompt,attention,steps,topk\na,,,\nb,full,,\nc,,4,\nd,,,0.7\ne,,,\n')
        tiny = ['batch', file, '-o', 'out', '--device', 'cpu', '--size', '64x64', '--frames', 9, '--steps', 10, '--quiet']
        lines = self.succeed(self.run_program(*tiny, '--verbose', '--report', 'r.json')).stdout.splitlines()
        self.assertRegex(lines[0], r'^out: 5 rows, 5 rendered, in [0-9.]+ s \([0-9.]+ s a video\)$')  # no preset line, because there are several presets
        self.assertEqual(json.loads((self.folder / 'r.json').read_text())['preset'], lines[1:])
        self.assertEqual([line.split(';')[0] for line in lines[1:]],
                         ['2 videos: preset balanced: 2 of 10 steps with every block, then topk 0.5', '1 video: preset exact: full attention',
                          '1 video: preset balanced for fewer than 10 steps: 1 of 4 steps with every block, then topk 0.5',
                          '1 video: preset balanced, with topk 0.7: 2 of 10 steps with every block, then topk 0.7'])
        made = {line['row']: line for line in self.manifest()}
        self.assertEqual([(made[i]['preset']['name'], made[i]['recipe'].get('topk'), made[i]['recipe'].get('dense_steps'), made[i]['recipe'].get('cache')) for i in range(5)],
                         [('balanced', 0.5, 2, 'forecast:0.16:20%:1'), ('exact', None, None, None), ('balanced', 0.5, 1, None), ('balanced', 0.7, 2, 'forecast:0.16:20%:1'),
                          ('balanced', 0.5, 2, 'forecast:0.16:20%:1')])
        self.assertNotIn('preset', self.succeed(self.run_program(*tiny)).stdout)  # no video is rendered, because all exist

    def test_row_that_cannot_be_decoded_keeps_its_latents(self):
        model = self.model_whose_videos_are(float('nan'))
        result = self.batch(self.write('set.txt', 'a red ball\n'), 'out', '-m', model, '--steps', FAMILY.fewest_steps)
        self.assertEqual(result.returncode, 1)
        self.assertIn('frames hold NaN', result.stderr)
        latents, = (self.folder / 'out').glob('*.latents.safetensors')
        self.assertIn(f'its latents are in out/{latents.name}', result.stderr)
        self.succeed(self.run_program('decode', latents, '-m', MODEL, '-o', 'a.mp4'))

    def test_video_is_made_even_if_its_latents_cannot_be_saved(self):
        in_the_way = self.folder / 'out' / 'a.safetensors'
        file = self.write('set.jsonl', '{"prompt": "a", "save_latents": "a.safetensors", "output": "a.y4m"}\n{"prompt": "b", "output": "b.y4m"}\n')
        process, terminal = self.start_program('batch', file, '-o', 'out', '-m', MODEL, '--device', 'cpu', '--steps', 60)
        self.read_until(terminal, 's/it')
        in_the_way.mkdir()
        text = ' '.join(self.read_until(terminal, None).split())
        self.assertEqual(process.wait(timeout=60), 1, text)
        self.assertIn('a.y4m exists, but cannot write', text)
        self.assertEqual([(line['output'], line['state']) for line in self.manifest()], [('a.y4m', 'failed'), ('b.y4m', 'done')])
        in_the_way.rmdir()
        self.assertEqual(sorted(self.videos()), ['a.y4m', 'a.y4m.checkpoint.safetensors', 'a.y4m.json', 'b.y4m', 'b.y4m.json'])  # the failed row leaves a checkpoint of its last step, so only decoding is left
        self.succeed(self.run_program('batch', file, '-o', 'out', '-m', MODEL, '--device', 'cpu', '--steps', 60))
        self.assertEqual(self.manifest()[-1]['resumed_at_step'], 60)
        self.assertEqual(sorted(self.videos()), ['a.safetensors', 'a.y4m', 'a.y4m.json', 'b.y4m', 'b.y4m.json'])

    def test_bad_row_fails_alone(self):
        file = self.write('set.csv', 'prompt,width,init_latents\na,,\nb,100,\nc,,missing.safetensors\nd,,\n')
        result = self.batch(file, 'out', '--steps', '2', '--json')
        self.assertEqual(result.returncode, 1)
        for word in ('set.csv:3: width 100', f'96 or {96 + FAMILY.multiples}', f'set.csv:4: init_latents: {self.folder}/missing.safetensors', '2 rows failed'):
            self.assertIn(word, result.stderr)
        self.assertEqual(sorted(self.videos()), ['0000-a.mp4', '0003-d.mp4'])
        self.assertEqual([failure['row'] for failure in json.loads(result.stdout)['set']['failures']], [1, 2])
        self.assertEqual(sorted((line['row'], line['state']) for line in self.manifest()),
                         [(0, 'done'), (1, 'failed'), (2, 'failed'), (3, 'done')])

    def test_row_too_large_for_memory_fails_alone(self):
        file = self.write('set.csv', 'prompt,width\na,\nb,16000000\nc,\n')
        result = self.batch(file, 'out', '--steps', FAMILY.fewest_steps, **limited_memory(8 << 30))
        self.assertEqual(result.returncode, 1)
        for word in ('set.csv:3: a video of 16000000 x ', 'needs at least', 'choose a smaller width or height, or fewer frames'):
            self.assertIn(word, result.stderr)
        self.assertEqual(sorted((line['row'], line['state']) for line in self.manifest()), [(0, 'done'), (1, 'failed'), (2, 'done')])
        self.assertEqual(sorted(self.videos()), ['0000-a.mp4', '0002-c.mp4'])

    def test_encoder_that_does_not_open_fails_only_its_row(self):
        file = self.write('set.jsonl', '{"prompt": "a"}\n{"prompt": "b", "codec": "mjpeg"}\n{"prompt": "c"}\n{"prompt": "d"}\n')
        for skipped in (0, 3):
            result = self.batch(file, 'out', '--steps', '2', '--json')
            self.assertEqual(result.returncode, 1)
            self.assertIn('set.jsonl:2', result.stderr)
            self.assertIn('mjpeg', result.stderr)
            report = json.loads(result.stdout)['set']
            self.assertEqual((report['rendered'], report['skipped'], report['failed']), (3 - skipped, skipped, 1))
        self.assertEqual(sorted(path.name for path in (self.folder / 'out').glob('*.mp4')), ['0000-a.mp4', '0002-c.mp4', '0003-d.mp4'])

    @unittest.skipUnless(MADE > ASKED, 'no number of frames is odd for this model')
    def test_row_warns_as_generate_does(self):
        self.succeed(self.batch(self.write('set.txt', 'a\n'), 'out', '--steps', '1', '--frames', ASKED))
        self.assertIn(f'{MADE} frames instead of {ASKED}', ' '.join(self.manifest()[0]['warnings']))

    @unittest.skipUnless(MADE > ASKED, 'no number of frames is odd for this model')
    def test_prints_warnings_once_and_before_the_work(self):
        other = self.copy_of_the_model()
        rows = [{'prompt': 'a', 'frames': ASKED}, {'prompt': 'b', 'frames': ASKED}, {'prompt': 'c', 'frames': FAMILY.frames}, {'prompt': 'd', 'frames': ASKED, 'model': str(other)}]
        file = self.write('set.jsonl', ''.join(json.dumps(row) + '\n' for row in rows))
        result = self.succeed(self.run_program('batch', file, '-o', 'out', '-m', MODEL, '--device', 'cpu', '--steps', 1, '--json'))
        told, = [line for line in result.stderr.splitlines() if f'{MADE} frames instead of {ASKED}' in line]
        self.assertTrue(told.startswith(f'warning: {file}:1 and 2 more rows: '), told)
        self.assertLess(result.stderr.index(told), result.stderr.index('set 1/4'))
        self.assertEqual(json.loads(result.stdout)['warnings'], [told.removeprefix('warning: ')])
        self.assertEqual([len(line['warnings']) for line in self.manifest()], [1, 1, 0, 1])
        again = self.succeed(self.run_program('batch', file, '-o', 'out', '-m', MODEL, '--device', 'cpu', '--steps', 1))
        self.assertNotIn('warning', again.stderr)  # no warning about the words of finished rows

    def test_warns_of_words_unknown_to_the_tiny_model_in_unfinished_rows(self):
        arguments = ['batch', self.write('set.txt', 'a zebra\na giraffe\n'), '-o', 'out', '--device', 'cpu', '--steps', 1, '--size', '64x64', '--frames', 1, '--quiet']
        text = self.succeed(self.run_program(*arguments)).stderr
        self.assertEqual(text.count('the tiny model knows moving shapes only'), 1)
        self.assertIn('zebra, giraffe', text)
        self.assertEqual(self.succeed(self.run_program(*arguments)).stderr, '')
    def test_makes_safe_names_for_all_prompts(self):
        prompts = ['../../../etc/passwd', 'x' * 300, '\u65e5\u672c', 'a\tb', 'CON', '-rf *', 'same', 'same']
        self.succeed(self.batch(self.write('set.txt', '\n'.join(prompts) + '\n'), 'out', '--steps', '1', '--frames', '1'))
        self.assertEqual(sorted(self.videos()), ['0000-etc-passwd.mp4', f'0001-{"x" * 48}.mp4', '0002.mp4', '0003-a-b.mp4', '0004-con.mp4',
                                                 '0005-rf.mp4', '0006-same.mp4', '0007-same.mp4'])

    def test_rows_with_different_models_are_rendered_in_turn(self):
        other = self.copy_of_the_model()
        file = self.write('set.jsonl', json.dumps({'prompt': 'a', 'model': str(other)}) + '\n{"prompt": "a", "dtype": "bf16"}\n{"prompt": "a", "model": "nowhere"}\n{"prompt": "a", "vae_dtype": "bf16"}\n{"prompt": "a", "weights": "fp8"}\n')
        result = self.batch(file, 'out', '--steps', '2')
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn('nowhere', result.stderr)
        lines = {line['row']: line for line in self.manifest()}
        self.assertEqual([lines[row]['state'] for row in range(5)], ['done', 'done', 'failed', 'done', 'done'])
        self.assertEqual([lines[row]['recipe']['dtype'] for row in (0, 1, 3)], ['fp32', 'bf16', 'fp32'])
        self.assertEqual(lines[3]['recipe'].get('vae_dtype'), 'bf16')
        self.assertEqual([lines[row]['recipe'].get('weights') for row in (0, 1, 3, 4)], [None, None, None, 'fp8'])

    def model_of_mixed_up_weights(self):
        """Returns a copy of the model that opens, but whose decoder's file holds the text encoder's tensors."""
        model = self.copy_of_the_model()
        shutil.copyfile(model / 'text_encoder' / 'model.safetensors', model / 'vae' / 'diffusion_pytorch_model.safetensors')
        return model.name

    def test_wrong_weights_of_a_rows_model_fail_only_that_row(self):
        model = self.model_of_mixed_up_weights()
        file = self.write('set.jsonl', json.dumps({'prompt': 'a', 'model': model}) + '\n{"prompt": "b"}\n')
        for rendered, skipped in ((1, 0), (0, 1)):
            result = self.batch(file, 'out', '--steps', '2', '--json')
            self.assertEqual(result.returncode, 1, result.stderr)
            for word in ('set.jsonl:1: model: model/vae: the weights do not fit', '1 row failed'):
                self.assertIn(word, result.stderr)
            report = json.loads(result.stdout)['set']
            self.assertEqual((report['rendered'], report['skipped']), (rendered, skipped))
            self.assertEqual([failure['row'] for failure in report['failures']], [0])
            self.assertEqual({line['row']: line['state'] for line in self.manifest()}, {0: 'failed', 1: 'done'})
            self.assertEqual(list(self.videos()), ['0001-b.mp4'])

    def test_wrong_weights_of_the_commands_model_end_the_run(self):
        file = self.write('set.txt', 'a\n')
        self.fail_with(self.run_program('batch', file, '-o', 'out', '-m', self.model_of_mixed_up_weights(), '--device', 'cpu', '--quiet'),
                       2, 'model/vae: the weights do not fit')
        self.assertEqual(self.manifest(), [])

    def test_every_row_warns_that_its_prompt_was_cut(self):
        self.succeed(self.batch(self.write('set.txt', ('word ' * 300 + '\n') * 2), 'out', '--steps', '1'))
        self.assertEqual([' '.join(line['warnings']).count('the prompt was cut') for line in self.manifest()], [1, 1])


class ProgressBars(BatchTest):
    def test_terminal_shows_the_progress_of_the_set_above_that_of_the_video(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        arguments = [word for word in self.arguments(self.prompts(2), 'out', '--steps', '3') if word != '--quiet']
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        text = ''
        while True:
            try:
                text += os.read(ours, 4096).decode()
            except OSError:
                break
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertRegex(text, r'set \[\.+\] 0/2\r\n.*denoise \[#+\.*\] 1/3 .*s/it')
        self.assertRegex(text, r'set \[#+\.+\] 1/2  [0-9.]+ s/it  ETA [0-9:]+\r\n.*denoise')


if __name__ == '__main__':
    unittest.main()
