"""Tests that errors name the file and the option, and that what the program prints is true."""
import json
import struct
import unittest

from support import MODEL, PROGRAM, PROMPT, CommandLineTest


class Errors(CommandLineTest):
    def json_of(self, result, code):
        self.assertEqual(result.returncode, code, result.stderr)
        return json.loads(result.stdout)

    def test_name_a_profile_with_other_heads(self):
        size = ['--size', '192x192', '--device', 'cpu']
        self.succeed(self.run_program('tune', '-m', MODEL, *size, '--steps', 1, '--samples', 1, '--videos', 0, '-p', PROMPT, '-o', 'p.yaml'))
        text = (self.folder / 'p.yaml').read_text()
        layers, heads = text.count('# layer'), text.count('error: ') - 1
        fewer = text[:text.rindex('# layer')].rstrip(' \n') + '\n'
        (self.folder / 'fewer.yaml').write_text(fewer)
        for command in (['generate', '-p', PROMPT], ['bench', 'pipeline', '--modes', 'sparse']):
            result = self.run_program(*command, '-m', MODEL, *size, '--steps', 1, '--profile', 'fewer.yaml')
            self.fail_with(result, 2, '--profile fewer.yaml has 1 layer of ', f'the model has {layers} layers of {heads // layers} heads', 'sparsereel tune')

    def write_safetensors(self, name, tensor, metadata):
        header = json.dumps({'__metadata__': metadata, tensor: {'dtype': 'F32', 'shape': [1], 'data_offsets': [0, 4]}}).encode()
        (self.folder / name).write_bytes(struct.pack('<Q', len(header)) + header + bytes(4))

    def test_escape_control_characters_of_files_in_the_terminal(self):
        evil = 'x\x1b[2J\x9b31m\u202e\x07\ry'
        shown = r'x\u001b[2J\u009b31m\u202e\u0007\u000dy'
        self.write_safetensors('t.safetensors', evil, {evil: f'{evil}\nerror: '})
        (self.folder / 'r.json').write_text(json.dumps({'version': evil, 'fps': 8, 'model': evil, 'prompt': evil, evil: evil}))
        (self.folder / 'c.yaml').write_text(json.dumps({evil: 1}))
        (self.folder / 'set.jsonl').write_text(json.dumps({'prompt': evil, evil: 1}))
        (self.folder / 'set.csv').write_text(f'prompt\n"{evil * 300}"\n')
        (self.folder / evil).mkdir()
        for arguments in (['inspect', 't.safetensors'], ['inspect', 'r.json'], ['generate', '--from', 'r.json'], ['generate', '-m', MODEL, '-p', 'x', '--config', 'c.yaml'],
                          ['batch', 'set.jsonl', '-m', MODEL, '-o', 'out'], ['batch', 'set.csv', '-m', MODEL, '-o', 'out', '--frames', 1, '--steps', 1, '--device', 'cpu'],
                          ['config', 'show', '-m', MODEL, '-p', evil], ['generate', '-m', evil, '-p', 'x'], ['generate', f'--{evil}'],
                          ['generate', '-m', MODEL, '-p', evil * 300, '-o', f'{evil}/a.gif', '--frames', 1, '--steps', 1, '--device', 'cpu']):
            with self.subTest(arguments):
                result = self.run_program(*arguments, text=False)
                told = (result.stdout + result.stderr).decode().replace(r'\r', r'\u000d')  # a carriage return as JSON spells it
                self.assertIn(shown, told)
                self.assertEqual([c for c in told if c in evil and not c.isprintable()], [])
                self.assertFalse(any(line.startswith('error: ') and not line.startswith('error: --') and shown not in line for line in told.splitlines()[1:]), told)
        summary = self.json_of(self.run_program('inspect', '--json', 't.safetensors', text=False), 0)
        self.assertEqual((summary['tensors'][0]['name'], summary['metadata']), (evil, {evil: f'{evil}\nerror: '}))

    def test_say_that_a_video_is_not_latents(self):
        self.succeed(self.generate('-o', 'clip.mp4', '--frames', 1))
        self.fail_with(self.run_program('decode', 'clip.mp4', '-m', MODEL), 2, 'clip.mp4 is a video', '--save-latents', '--from')
        self.fail_with(self.generate('--init-latents', 'clip.mp4'), 2, 'clip.mp4 is a video')

    def test_inspect_refuses_foreign_json_as_a_recipe(self):
        self.succeed(self.generate('-o', 'clip.gif', '--frames', 1))
        for text in ('{"hello": 1}', '{"version": "3", "name": "somebody else\'s"}', '[1]'):
            (self.folder / 'clip.gif.json').write_text(text)
            self.fail_with(self.run_program('inspect', 'clip.gif'), 2, 'clip.gif carries no recipe')

    def test_json_describes_early_failures(self):
        (self.folder / 'good.yaml').write_text('json: true\nsteps: 3\n')
        for arguments, command, cause in (
                (['generate', '--json', '-p', 'x', '-m', 'nowhere'], 'generate', 'nowhere: there is no file or folder'), (['generate', '--json', '--wrong'], 'generate', '--wrong'),
                (['batch', '--json'], 'batch', 'a prompt set is missing'), (['inspect', '--json', 'nowhere'], 'inspect', 'nowhere: no such file'),
                (['bench', 'attention', '--json', '--modes', 'ful'], 'bench attention', 'ful'), (['bench', '--json'], 'bench', ''), (['--json'], '', ''),
                (['generate', '--json', '-p', 'x', '--report', 'a', '-o', 'a'], 'generate', 'the same file'),
                (['generate', '-p', 'x', '--config', 'good.yaml', '-m', 'nowhere'], 'generate', 'nowhere')):
            with self.subTest(arguments):
                report = self.json_of(self.run_program(*arguments), 2)
                self.assertEqual((report['command'], report['exit']['code'], report['exit']['state']), (command, 2, 'failed'))
                self.assertIn(cause, report['exit']['cause'])
                self.assertTrue(report['exit']['remedy'])
        self.assertEqual(self.run_program('generate', '-p', 'x', '-m', 'nowhere').stdout, '')

    def test_reports_describe_early_failures(self):
        (self.folder / 'my.yaml').write_text('report: named.json\n')
        for arguments, command, cause in (
                (['generate', '-p', 'x', '-m', 'nowhere', '--report', 'r.json'], 'generate', 'nowhere: there is no file or folder'),
                (['generate', '-p', 'x', '-m', MODEL, '--steps', 'many', '--report=r.json'], 'generate', '--steps many'),
                (['generate', '-p', 'x', '-m', 'nowhere', '--config', 'my.yaml'], 'generate', 'nowhere'),
                (['batch', '--report', 'r.json', '-m', MODEL], 'batch', 'a prompt set is missing'),
                (['bench', 'attention', '--shape', '1,1,64,64', '--report', 'r.json', '-o', 'none/a.md'], 'bench attention', 'none')):
            for _ in range(2):  # the second run finds the report of the first run, which it replaces
                with self.subTest(arguments):
                    self.fail_with(self.run_program(*arguments), 2, cause)
                    name = 'named.json' if 'my.yaml' in arguments else 'r.json'
                    report = json.loads((self.folder / name).read_text())
                    self.assertEqual((report['command'], report['exit']['code'], report['exit']['state']), (command, 2, 'failed'))
                    self.assertIn(cause, report['exit']['cause'])
            (self.folder / name).unlink()

    def test_reports_of_early_failures_replace_no_file(self):
        (self.folder / 'notes.txt').write_text('mine')
        (self.folder / 'my.yaml').write_text('steps: 2\noutput: clip.mp4\n')
        failing = ['generate', '-p', 'x', '-m', 'nowhere']
        for arguments in ([*failing, '--report', 'notes.txt'], [*failing, '--config', 'my.yaml', '--report', 'my.yaml'], [*failing, '-o', 'clip.mp4', '--report', 'clip.mp4'],
                          [*failing, '-oclip.mp4', '--report', './clip.mp4'], [*failing, '--config', 'my.yaml', '--report', 'clip.mp4'], [*failing, '--report', '-'],
                          [*failing, '--report', 'none/r.json'], ['config', 'show', '-m', 'nowhere', '--report', 'r.json']):
            with self.subTest(arguments):
                self.fail_with(self.run_program(*arguments), 2)
                self.assertEqual(self.names(), ['my.yaml', 'notes.txt'])
                self.assertEqual((self.folder / 'notes.txt').read_text(), 'mine')

    def test_suggest_the_nearest_command_and_list_all(self):
        for arguments, words in ((['bench', 'speed'], ['speed is not a command of bench', 'use attention, pipeline, quality or plot', f"see '{PROGRAM} bench --help'"]),
                                 (['bench', 'pipelin'], ['pipelin is not a command of bench', 'did you mean pipeline?']), (['bench'], ['bench needs a command', 'use attention']),
                                 (['config'], ['config needs a command', 'use show']), (['config', 'shwo'], ['shwo is not a command of config', 'did you mean show?']),
                                 ([], ['sparsereel needs a command', 'use generate, batch']), (['genrate'], ['genrate is not a command', 'did you mean generate?', 'use generate, batch']),
                                 (['bench', '--topk', 0.5], ['bench does not take --topk 0.5'])):
            with self.subTest(arguments):
                self.fail_with(self.run_program(*arguments), 2, *words)

    def test_list_unknown_words_in_their_order(self):
        for arguments, words in ((['decode', 'l.safetensors', '--count', 2, '--steps=3'], 'decode does not take --count 2 --steps=3'),
                                 (['bench', 'plot', 'r.json', '--frames', 2], 'bench plot does not take --frames'), (['--loud'], 'sparsereel does not take --loud'),
                                 (['generate', 'a red circle'], "generate does not take 'a red circle'"), (['generate', '-p', 'a', 'red', 'circle'], 'generate does not take red circle')):
            with self.subTest(arguments):
                self.fail_with(self.run_program(*arguments), 2, words, *(['a prompt follows -p, in quotes'] if 'generate' in arguments else []))

    def test_refuse_outputs_without_a_name(self):
        for name in ('.mp4', 'none/.GIF', '.safetensors'):
            self.fail_with(self.generate('-o', name), 2, f'--output {name} has no name before its ending')
        for name in ('.', './', '..'):
            self.fail_with(self.generate('-o', name, '--count', 2), 2, f'{name}: this has no file name that --batch-count could number')
        self.fail_with(self.run_program('inspect', ''), 2, 'PATH is an empty text')
        self.fail_with(self.generate('--cfg-scale', '-1e300'), 2, '--cfg-scale -1e+300 is not')
        self.assertEqual(self.names(), [])

    def test_refuse_a_dash_as_a_report(self):
        self.fail_with(self.generate('--report', '-'), 2, '--report -', '--json')
        self.assertEqual(self.names(), [])

    def test_keep_a_folder_with_the_name_of_a_video(self):
        for name in ('clip.mp4', 'clip.GIF', 'clip.y4m', 'frames'):
            (self.folder / name).mkdir()
        for name in ('clip.mp4', 'clip.GIF', 'clip.y4m'):
            self.fail_with(self.generate('-o', name, '--frames', 1), 2, f'{name} is a folder', f'-o {name}/')
            self.assertEqual(list((self.folder / name).iterdir()), [])
        for name in ('clip.mp4/', 'frames'):
            self.succeed(self.generate('-o', name, '--frames', 1))
            self.assertEqual([file.name for file in (self.folder / name).iterdir()], ['000000.png'])

    def test_name_options_as_on_the_command_line(self):
        result = self.generate('--frames', 4000000000001)
        self.fail_with(result, 2, 'fewer frames', 'smaller width')
        self.assertNotIn('num_frames', result.stderr)

    def test_status_works_before_the_first_video_of_a_set(self):
        (self.folder / 'out').mkdir()
        self.fail_with(self.run_program('batch', '--status', 'out'), 2, 'out holds no manifest')
        (self.folder / 'out' / 'manifest.0.jsonl').write_text('')
        self.assertEqual(self.succeed(self.run_program('batch', '--status', 'out')).stdout, 'out: started, but no video is finished yet\n')
        report = json.loads(self.succeed(self.run_program('batch', '--status', 'out', '--json')).stdout)
        self.assertEqual((report['set']['done'], report['set']['failed']), (0, 0))

    def test_warn_of_runs_that_take_hours(self):
        hours = ['-m', MODEL, '--size', '1024x1024', '--frames', 33, '--steps', 1000, '--device', 'cpu', '--quiet']
        for command, words in ((['generate', '-p', PROMPT, *hours], 'the 1000 steps of a video will take about '),
                               (['bench', 'pipeline', *hours, '--warmup', 0, '--repetitions', 1, '--no-decode'], 'the 1000 steps of a video will take about '),
                               (['bench', 'attention', '--shape', '1,2,75600,64', '--device', 'cpu', '--repetitions', 300, '--quiet'], 'measuring will take about ')):
            with self.subTest(command=command[:2]):
                process, terminal = self.start_program(*map(str, command))
                try:
                    text = self.read_until(terminal, 'with full attention and no cache): use a GPU')
                finally:
                    process.kill()
                    process.wait()
                self.assertRegex(text, f'warning: {words}[0-9]+ (minutes|hours|days) on this CPU')

    def test_use_the_singular_for_one(self):
        self.assertIn('video.mp4: 1 frame, 64x64', self.succeed(self.generate('--frames', 1)).stdout)
        (self.folder / 'set.txt').write_text('a\n')
        usual = ['batch', 'set.txt', '-o', 'out', '-m', MODEL, '--steps', 1, '--frames', 1, '--device', 'cpu']
        self.assertIn('out: 1 row, 1 rendered', self.succeed(self.run_program(*usual)).stdout)
        self.assertIn('1 of 1 row done', self.succeed(self.run_program('batch', '--status', 'out')).stdout)


if __name__ == '__main__':
    unittest.main()
