"""Tests options: their names, `config show`, and which value wins if the command line, --config, the model's file in configs/ and the checkpoint differ."""
import json
import re
import subprocess
import unittest

from support import FAMILY, MODEL, PROGRAM, PROMPT, ROOT, CommandLineTest


class Options(CommandLineTest):
    def show(self, *arguments):
        """Returns {option: (value, source)} from `config show`."""
        result = self.succeed(self.run_program('config', 'show', '-m', MODEL, *arguments))
        rows = {}
        for line in result.stdout.splitlines():
            setting, source = line.rsplit(' # ', 1)
            key, value = setting.split(': ', 1)
            value = json.loads(value)
            rows[key] = (value if isinstance(value, str) else json.dumps(value), source)
        return rows

    def config(self, text, name='my.yaml'):
        (self.folder / name).write_text(text)
        return name

    def test_presets_come_from_the_config_of_the_model_and_yield_to_options(self):
        def show(*arguments):
            return self.succeed(self.run_program('config', 'show', '-p', 'a dog', *arguments)).stdout
        usual = show()  # the default model is the tiny model, whose presets are in configs/tiny.yaml
        self.assertEqual(show('--preset', 'balanced'), usual)
        self.assertEqual(show('--preset', 'quality'), show('--preset', 'near'))
        for preset in ('near', 'balanced', 'fast'):
            self.assertRegex(show('--preset', preset), r'(?m)^cache: "forecast:[0-9.:%]+" +# .*configs/tiny.yaml:[0-9]+')
        self.assertRegex(usual, r'(?m)^dense_steps: 5 +# .*configs/tiny.yaml:[0-9]+')  # 20% of 25 steps
        exact = show('--preset', 'exact')
        self.assertRegex(exact, r'(?m)^attention: "full" +# .*configs/tiny.yaml:[0-9]+')
        self.assertRegex(exact, r'(?m)^cache: "0" +# default')
        self.assertEqual(exact.replace(re.search('# .*tiny.yaml:.*', exact.split('attention: ')[1])[0], '# command line'), show('--attention', 'full'))
        self.assertRegex(show('--attention', 'full', '--preset', 'balanced'), r'(?m)^cache: "forecast:[0-9.:%]+" +# .*configs/tiny.yaml:[0-9]+')
        self.assertRegex(show('--steps', 9), r'(?m)^dense_steps: 1 +# .*configs/tiny.yaml:[0-9]+')  # fewer than 10 steps have presets of their own
        self.assertRegex(show('--steps', 9), r'(?m)^cache: "0" +# default')
        self.assertRegex(show('--preset', 'fast', '--topk', 0.9), r'(?m)^topk: 0.9 +# command line')
        self.assertRegex(show('--preset', 'fast', '--cache', 0.5), r'(?m)^cache: "first-block:0.5" +# command line')
        self.fail_with(self.generate('--preset', 'fast', '-m', MODEL), 2, 'no such preset', '--preset fast')
        self.fail_with(self.generate('--preset', 'fast', '--from', 'a.mp4'), 2, '--preset', '--from')

    def test_defaults_come_from_checkpoint_and_program(self):
        rows = self.show()
        for key, value in zip(('width', 'height', 'frames', 'scheduler'), (*FAMILY.video, FAMILY.classes[1])):
            self.assertEqual(rows[key], (str(value), 'checkpoint'))
        self.assertEqual(rows['steps'], ('50', 'default'))
        self.assertEqual(rows['seed'], ('42', 'default'))

    def test_config_file_beats_defaults_and_command_line_beats_config_file(self):
        name = self.config('steps: 7\nfps: 12.5\ndynamic_cfg: true\n')
        rows = self.show('--config', name, '--fps', '24')
        self.assertEqual(rows['steps'], ('7', 'my.yaml:1'))
        self.assertEqual(rows['dynamic_cfg'], ('true', 'my.yaml:3'))
        self.assertEqual(rows['fps'], ('24.0', 'command line'))

    def test_command_line_turns_off_a_flag_of_the_file(self):
        name = self.config('dynamic_cfg: true\n')
        self.assertEqual(self.show('--config', name, '--no-dynamic-cfg')['dynamic_cfg'], ('false', 'command line'))

    def test_checks_the_value_of_a_flag(self):
        self.fail_with(self.run_program('config', 'show', '--offload=maybe'), 2, '--offload maybe: one of auto, on, off')
        self.fail_with(self.run_program('generate', '--no_dynamic_cfg=maybe'), 2, '--no-dynamic-cfg maybe')
        self.assertIn('quiet: true', self.succeed(self.run_program('config', 'show', '--quiet=1')).stdout)

    def test_offload_needs_no_value(self):
        for words, value in (([], None), (['--offload', 'auto'], 'auto'), (['--offload', 'off', '-p', PROMPT], 'off'), (['--offload=false'], 'false'),
                             (['--config', self.config('offload: off\n')], 'off')):
            self.assertEqual(self.show(*words).get('offload', (None,))[0], value, words)
        for words in (['--offload'], ['--offload', 'on'], ['--offload', '--quiet']):
            self.assertIn('has no effect on a CPU', self.generate('--dry-run', *words).stderr, words)
        self.fail_with(self.run_program('batch', '--offload', 'none.txt', '-o', 'out', '-m', MODEL), 2, 'none.txt')
        self.fail_with(self.generate('--max-vram', '-1'), 2, '--max-vram -1')

    def test_command_line_choice_removes_the_opposite_choice_of_the_file(self):
        name = self.config('cdf: 0.8\nprompt_file: nowhere.txt\n')
        rows = self.show('--config', name, '--topk', '0.3', '-p', PROMPT)
        self.assertEqual(rows['topk'], ('0.3', 'command line'))
        self.assertNotIn('cdf', rows)
        self.assertEqual(rows['prompt'], (PROMPT, 'command line'))

    def means(self, *arguments):
        """Returns what `config show` shows about block selection and means: {option: value}."""
        rows = self.show('--attention', 'sparse', *arguments)
        return {key: rows[key][0] for key in ('dropped', 'select', 'cell', 'topk', 'cdf', 'error', 'block_error') if key in rows}

    def test_related_options_choose_means_and_their_ranking(self):
        published = {'dropped': 'none', 'select': 'mass', 'topk': '0.3'}
        self.assertEqual(self.means('--topk', '0.3', '--dropped', 'none'), published)
        self.assertEqual(self.means('--topk', '0.3', '--dropped', 'none', '--select', 'mass'), published)
        self.assertEqual(self.means('--dropped', 'none'), published | {'topk': '0.5'})
        self.assertEqual(self.means('--dropped', 'none', '--config', self.config('topk: 0.3\n', 'topk.yaml')), published)
        self.assertEqual(self.means('--dropped', 'mean')['topk'], '0.12')
        means = {'dropped': 'mean', 'select': 'error', 'cell': '32', 'topk': '0.3'}
        for arguments in (['--dropped', 'mean'], ['--select', 'error'], ['--select', 'error', '--dropped', 'mean']):
            self.assertEqual(self.means('--topk', '0.3', '--cell', '32', *arguments), means, arguments)
        self.assertEqual(self.means('--topk', '0.3', '--cell', '32', '--dropped', 'mean', '--select', 'mass'), means | {'select': 'mass'})
        self.assertEqual(self.means('--error', '0.05', '--cell', '64'), {'dropped': 'mean', 'select': 'error', 'cell': '64', 'error': '0.05'})
        self.assertEqual(self.means('--block-error', '0.01', '--cell', '64'), {'dropped': 'mean', 'select': 'error', 'cell': '64', 'block_error': '0.01'})
        self.assertEqual(self.means('--cdf', '0.8', '--dropped', 'mean', '--cell', '16'),
                         {'dropped': 'mean', 'select': 'error', 'cell': '16', 'cdf': '0.8'})
        self.assertNotIn('dropped', self.show('--attention', 'full'))

    def test_choice_of_means_removes_contradictory_options_of_weaker_sources(self):
        published = self.config('dropped: none\nselect: mass\ntopk: 0.3\n', 'a.yaml')
        self.assertEqual(self.means('--config', published, '--error', '0.05', '--cell', '16'),
                         {'dropped': 'mean', 'select': 'error', 'cell': '16', 'error': '0.05'})
        by_error = self.config('dropped: mean\nselect: error\nerror: 0.05\ncell: 32\n', 'b.yaml')
        self.assertEqual(self.means('--config', by_error, '--dropped', 'none', '--topk', '0.3'), {'dropped': 'none', 'select': 'mass', 'topk': '0.3'})
        self.assertEqual(self.means('--config', by_error, '--topk', '0.3'), {'dropped': 'mean', 'select': 'error', 'cell': '32', 'topk': '0.3'})
        contradiction = self.config('dropped: none\nselect: error\n', 'c.yaml')
        self.fail_with(self.run_program('config', 'show', '-m', MODEL, '--config', contradiction), 2, 'c.yaml:1:10: dropped none', 'c.yaml:2:9: select error', 'exclude')

    def test_warns_of_options_without_effect(self):
        full, quantized = (f'with --attention {mode}, which computes every block' for mode in ('full', 'quantized'))
        for base, without_effect, warnings in (
                (['--attention', 'full'], ['--topk', '0.5', '--dropped', 'mean', '--dense-steps', '1'],
                 [f'--topk 0.5 has no effect {full}', f'--dropped mean has no effect {full}', f'--dense-steps 1 has no effect {full}']),
                (['--attention', 'quantized'], ['--error', '0.1', '--dense-layers', '1'],
                 [f'--error 0.1 has no effect {quantized}', f'--dense-layers 1 has no effect {quantized}']),
                (['--dropped', 'none'], ['--cell', '32'], ['--cell 32 has no effect with --dropped none, which has no means']),
                *((base, ['--arithmetic', '16'], ['--arithmetic 16 has no effect on a CPU, which computes in fp32']) for base in ([], ['--attention', 'full'])),
                (['--attention', 'full'], ['--arithmetic', '8'], []),  # 8 bits are the default, so the option changes nothing
                (['--cfg-scale', '1'], ['-n', 'blurry', '--dynamic-cfg', '--guidance-passes', 'in-turn'],
                 [f'--{option} has no effect without guidance (--cfg-scale 1)' for option in ('negative-prompt blurry', 'dynamic-cfg true', 'guidance-passes in-turn')]),
                ([], ['--crf', '20', '--codec', 'libx265'],
                 [f'--{option} has no effect on .y4m: it is for .mp4, .mov, .mkv and .webm' for option in ('crf 20', 'codec libx265')]),
                ([], ['--cache', '0.1'], ['--cache 0.1 has no effect with one step, because no later step can reuse it']),
                ([], ['--strict-lora'], ['--strict-lora true has no effect without a LoRA']),
                ([], ['--no-audio'], ['--no-audio true has no effect for a model that makes no sound']),
                ([], ['--offload', 'auto'], []),
                ([], ['--max-vram', '8'], ["--max-vram 8 has no effect on a CPU, whose memory is the host's"]),
                ([], ['--offload'], ["--offload true has no effect on a CPU, whose memory is the host's"])):
            with self.subTest(without_effect):
                made = []
                for name, arguments in (('a.y4m', base), ('b.y4m', [*base, *without_effect])):
                    result = self.generate('--json', '--quiet', '--steps', 1, '-o', name, *arguments)
                    self.warn_with(result, *(warnings if name == 'b.y4m' else []))
                    report = json.loads(result.stdout)
                    self.assertEqual(report['warnings'], warnings if name == 'b.y4m' else [])
                    made.append((report['recipe'], (self.folder / name).read_bytes()))
                self.assertEqual(*made)
        self.warn_with(self.generate('--steps', 1, '-o', 'a.safetensors', '--fps', 12), '--fps 12 has no effect on .safetensors, which holds only frames')
        self.warn_with(self.generate('--steps', 1, '-o', 'a.safetensors', '--fps', 12, '--save-latents', 'l.safetensors'))
        self.warn_with(self.run_program('decode', 'l.safetensors', '-m', MODEL, '-o', 'b.gif', '--crf', 20),
                       '--crf 20 has no effect on .gif: it is for .mp4, .mov, .mkv and .webm')
        self.warn_with(self.run_program('decode', 'l.safetensors', '-m', MODEL, '-o', 'b.gif', '--no-audio'), '--no-audio true has no effect for a model that makes no sound')
        self.warn_with(self.run_program('config', 'show', '-m', MODEL, '--attention', 'full', '--topk', 0.5), f'--topk 0.5 has no effect {full}')
        self.assertNotIn('topk', self.show('--attention', 'full', '--topk', 0.5))

    def test_names_the_place_of_file_options_without_effect_unless_overridden(self):
        name = self.config('topk: 0.5\ncrf: 20\n')
        arguments = ['--steps', 1, '-o', 'a.y4m', '--config', name]
        self.warn_with(self.generate(*arguments, '--attention', 'full'))  # no warning: the command line overrides the file
        self.config('attention: full\ntopk: 0.5\n')
        self.warn_with(self.generate(*arguments), 'my.yaml:2:7: topk 0.5 has no effect with my.yaml:1:12: attention full, which computes every block')

    def test_accepts_other_names_underscores_and_equals_signs(self):
        rows = self.show('--num_inference_steps', '9', '--guidance-scale=3', '--num_frames=5', '--token_order', 'time-major')
        self.assertEqual((rows['steps'][0], rows['cfg_scale'][0], rows['frames'][0]), ('9', '3.0', '5'))
        self.assertEqual(rows['token_order'][0], 'time-major')

    def test_accepts_other_names_in_a_file(self):
        self.assertEqual(self.show('--config', self.config('num_inference_steps: 3\n'))['steps'], ('3', 'my.yaml:1'))

    def test_size_sets_both_sides(self):
        rows = self.show('--size', '48x32')
        self.assertEqual((rows['width'], rows['height']), (('48', 'command line'), ('32', 'command line')))

    def test_run_obeys_the_config_file(self):
        name = self.config(f'model: {MODEL}\nprompt: {PROMPT}\nsteps: 1\noutput: clip.mp4\nwidth: 32\nquiet: true\n')
        self.succeed(self.run_program('generate', '--config', name))
        self.assertEqual(self.names(), ['clip.mp4', 'my.yaml'])

    def test_shown_settings_can_be_given_again(self):
        shown = self.succeed(self.run_program('config', 'show', '-m', MODEL, '-p', 'a "red": circle #1', '--cdf', '0.8', '--seed', 7)).stdout
        rows = self.show('--config', self.config(shown))
        self.assertRegex(rows['prompt'][1], r'my.yaml:\d+')
        self.assertEqual(rows['prompt'][0], 'a "red": circle #1')
        self.assertEqual((rows['cdf'][0], rows['seed'][0], rows['width'][0]), ('0.8', '7', '64'))

    def test_shown_settings_run_and_show_the_same(self):
        (self.folder / 'prompt.txt').write_text(PROMPT)
        self.succeed(self.generate('--save-latents', 'noise.safetensors', '-o', 'a.safetensors'))
        (self.folder / 'sub').mkdir()
        self.succeed(self.run_program('tune', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '--size', '64x64', '--frames', 9, '--steps', 1,
                                      '--samples', 1, '--videos', 0, '--quiet', '-o', 'p.yaml'))
        for arguments in (['--profile', 'p.yaml', '--contact-sheet', 'sub/sheet.png', '--report', 'sub/r.json', '--dynamic-cfg'], ['--attention', 'full', '-o', 'clip.gif'],
                          ['--attention', 'sparse', '--cdf', '0.9', '--similarity', '0.2', '--prompt-file', 'prompt.txt'], ['--dropped', 'none', '--cfg-scale', '1'],
                          ['--dropped', 'mean', '--select', 'mass', '--cell', '32', '--init-latents', 'noise.safetensors', '--save-latents', 'sub/l.safetensors'],
                          ['--error', '0.1', '--cell', '16', '-o', 'frames'], ['--block-error', '0.01']):
            with self.subTest(arguments):
                prompt = [] if '--prompt-file' in arguments else ['-p', PROMPT]
                first = self.succeed(self.run_program('config', 'show', '-m', MODEL, '--steps', 1, *prompt, *arguments)).stdout
                name = self.config(first, 'shown.yaml')
                again = self.succeed(self.run_program('config', 'show', '--config', f'../{name}', cwd=self.folder / 'sub')).stdout
                values = [[line.rsplit(' # ', 1)[0].strip() for line in text.splitlines()] for text in (first, again)]
                self.assertEqual(*values)
                self.succeed(self.run_program('generate', '--config', f'../{name}', cwd=self.folder / 'sub'))

    def test_shows_defaults_of_the_matched_config_only_if_they_apply(self):
        tiny = ROOT / 'assets' / 'tiny'  # configs/tiny.yaml sets a similarity
        for mode, shown in (('sparse', True), ('full', False)):
            text = self.succeed(self.run_program('config', 'show', '-m', tiny, '-p', PROMPT, '--attention', mode)).stdout
            self.assertEqual('similarity: ' in text, shown, mode)
            self.succeed(self.run_program('config', 'show', '--config', self.config(text)))

    def test_shown_settings_of_a_preset_mean_the_same_when_given_again(self):
        def show(*arguments):
            text = self.succeed(self.run_program('config', 'show', *arguments)).stdout
            return [line.rsplit(' # ', 1)[0].strip() for line in text.splitlines()]
        (self.folder / 'old.json').write_text(json.dumps({'version': '0.1.0', 'model': 'tiny', 'prompt': 'a dog', 'seed': 7, 'steps': 25, 'fps': 8, 'attention': 'sparse', 'topk': 0.4,
                                                          'dropped': 'mean', 'select': 'error'}))
        for arguments in ([], ['--preset', 'near'], ['--preset', 'exact'], ['--steps', 4], ['--cache', 0], ['--attention', 'full'], ['--from', 'old.json']):
            with self.subTest(arguments):
                shown = show(*([] if '--from' in arguments else ['-p', PROMPT]), *arguments)
                self.assertEqual(show('--config', self.config('\n'.join(shown))), shown)
        self.assertIn('cache: "0"', shown)  # `shown` is that of the recipe, which presets do not change

    def test_fails_if_stdout_cannot_be_written(self):
        for command in (['completion', 'bash'], ['reference'], ['config', 'show', '-m', MODEL], ['inspect', MODEL, '--json']):
            with self.subTest(command), open('/dev/full', 'w') as full:
                result = subprocess.run([PROGRAM, *map(str, command)], stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(result.returncode, 1)
                self.assertIn('standard output could not be written', result.stderr)

    def test_does_not_show_a_missing_prompt_as_empty(self):
        self.assertNotIn('prompt', self.show())

    def test_unknown_key_names_file_and_key(self):
        name = self.config('stepz: 3\n')
        self.fail_with(self.run_program('config', 'show', '-m', MODEL, '--config', name), 2, 'my.yaml:1:1: the key stepz', 'did you mean steps?')

    def test_names_the_place_of_values_that_only_the_model_refuses(self):
        for text, place in (('steps: 3\nframes:  6\n', 'my.yaml:2:10: frames 6'), ('topk: 1.5\n', 'my.yaml:1:7: topk'),
                            ('width: 250\n', 'my.yaml:1:8: width 250'), ('scheduler: euler\n', 'my.yaml:1:12: scheduler euler'),
                            ('threads: 0\n', 'my.yaml:1:10: threads 0'), ('steps: 0\n', 'my.yaml:1:8: steps 0'),
                            ('device: tpu\n', 'my.yaml:1:9: device tpu')):
            self.fail_with(self.run_program('config', 'show', '-m', MODEL, '--config', self.config(text)), 2, place)

    def test_names_the_place_of_files_that_cannot_be_used(self):
        (self.folder / 'folder').mkdir()
        (self.folder / 'text').write_text('no tensors\n')
        for key, value in (('model', 'nowhere'), ('model', 'folder'), ('random_weights', 'nowhere.yaml'), ('random_weights', 'text'), ('from', 'nowhere.mp4'),
                           ('from', 'text'), ('prompt_file', 'nowhere.txt'), ('output', 'nowhere/a.mp4'), ('output', 'a.xyz'), ('output', 'my.yaml'),
                           ('save_latents', 'nowhere/a.safetensors'), ('init_latents', 'nowhere.safetensors'), ('init_latents', 'text'),
                           ('contact_sheet', 'nowhere/a.png'), ('contact_sheet', 'a.jpg'), ('report', 'nowhere/a.json'), ('profile', 'nowhere.yaml'),
                           ('profile', 'text')):
            with self.subTest(key=key, value=value):
                given = [] if key in ('model', 'random_weights', 'from') else ['-m', MODEL]
                prompt = [] if key == 'prompt_file' else ['-p', PROMPT]
                name = self.config(f'quiet: true\n{key}:  {value}\n')
                result = self.run_program('generate', *given, *prompt, '--steps', 1, '--config', name)
                self.fail_with(result, 2, f'my.yaml:2:{len(key) + 4}: {key}')
                self.assertEqual(result.stderr.count('my.yaml:2'), 1, result.stderr)

    def test_does_not_mistake_parts_of_longer_names_for_a_file(self):
        name = self.config('output: a\nsave_latents: nowhere\n')
        self.fail_with(self.run_program('config', 'show', '-m', 'nowhere-else', '--config', name), 2, 'error: nowhere-else: there is no file or folder')

    def test_files_are_not_blamed_for_errors_that_begin_with_their_names(self):
        (self.folder / 'a').mkdir()
        for value, arguments, error in (
                ('a', ['-m', MODEL], 'a prompt is missing'), ('topk is', ['-m', MODEL, '-p', PROMPT, '--topk', '1.5'], '--topk is 1.5'),
                ('block_error is', ['-m', MODEL, '-p', PROMPT, '--block-error', '1e39'], '--block-error is 1e+39'),
                ('error is', ['-m', MODEL, '-p', PROMPT, '--error', '1001'], '--error is 1001'),
                ('--steps', ['-m', MODEL, '-p', PROMPT, '--steps', '0'], '--steps 0 is below 1'),
                ('a', ['--from', 'a.mp4'], 'a.mp4: no such file'),
                ('a', ['-m', MODEL, '-p', PROMPT, '--save-latents', 'a/b/c.safetensors'], 'cannot write')):
            with self.subTest(error=error):
                name = self.config(f'output: "{value}"\n')
                result = self.run_program('generate', *arguments, '--config', name)
                self.fail_with(result, 2, f'error: {error}')

    def test_wrong_values_name_file_and_key(self):
        for text in ('steps: many\n', 'steps: [1, 2]\n', 'dynamic_cfg: maybe\n', 'attention: dense\n', 'steps:\n'):
            result = self.run_program('config', 'show', '-m', MODEL, '--config', self.config(text))
            self.fail_with(result, 2, 'my.yaml', text.split(':')[0])

    def test_broken_yaml_names_file_and_line(self):
        name = self.config('steps: [3\n')
        self.fail_with(self.run_program('config', 'show', '-m', MODEL, '--config', name), 2, 'my.yaml:2:1')

    def test_refuses_a_list_instead_of_a_map(self):
        name = self.config('- steps\n')
        self.fail_with(self.run_program('config', 'show', '-m', MODEL, '--config', name), 2, 'my.yaml')

    def test_refuses_the_same_option_twice_in_a_file(self):
        for text in ('steps: 3\nnum_inference_steps: 4\n', 'topk: 0.5\ncdf: 0.9\n'):
            self.fail_with(self.run_program('config', 'show', '-m', MODEL, '--config', self.config(text)), 2, 'my.yaml')

    def test_refuses_an_empty_file_name(self):
        self.fail_with(self.generate('--image', ''), 2, '--image is empty')

    def test_refuses_an_empty_model_name(self):
        self.fail_with(self.run_program('config', 'show', '--config', self.config('model: ""\n')), 2, 'my.yaml:1:8: model is empty')

    def test_refuses_a_missing_config_file(self):
        self.fail_with(self.run_program('config', 'show', '-m', MODEL, '--config', 'none.yaml'), 2, 'none.yaml')

    def test_accepts_overridden_options_of_a_file(self):
        name = self.config('topk: 0.3\ncrf: 20\n')
        self.succeed(self.generate('--config', name, '--steps', 1, '--attention', 'full', '-o', 'a.gif'))


if __name__ == '__main__':
    unittest.main()
