"""Tests `generate --from`: it renders a video again from the recipe inside the video file, and options on the command line override the recipe."""
import json
import os
import unittest

from support import FAMILY, MODEL, PROMPT, ROOT, CommandLineTest


class Recipe(CommandLineTest):
    def render(self, *arguments, **options):
        return self.run_program('generate', '--quiet', *arguments, **options)

    def read(self, name):
        return (self.folder / name).read_bytes()

    def recipe(self, name):
        return json.loads(self.succeed(self.run_program('inspect', name, '--json')).stdout)['recipe']

    def test_video_is_rendered_again_to_the_last_byte(self):
        for name, arguments in (('a.mp4', ['--cfg-scale', 3.7, '--dynamic-cfg', '-n', 'blurry', '--fps', 12.5, '--crf', 30]),
                                ('b.mp4', ['--attention', 'full', '--scheduler', FAMILY.samplers[1], '--token-order', 'native']),
                                ('c.mp4', ['--cdf', '0.83', '--similarity', '0.1', '--dense-steps', 1, '--codec', 'mpeg4']),
                                ('d.mp4', ['--cfg-scale', 1, '--dtype', 'bf16', '--attention', 'full', '--size', '48x32']),
                                ('e.gif', ['--frames', 5]),
                                ('f.mp4', ['--size', '192x192', '--topk', 0.3, '--dropped', 'mean', '--select', 'mass', '--cell', 32]),
                                ('g.mp4', ['--size', '192x192', '--error', 0.2, '--cell', 16]),
                                ('i.mp4', ['--size', '192x192', '--block-error', 0.01]),
                                ('h.mp4', ['--size', '192x192', '--dropped', 'none', '--select', 'mass'])):
            with self.subTest(name):
                self.succeed(self.generate('-o', name, '--seed', 18446744073709551615, *arguments))
                again = 'again-' + name
                self.succeed(self.render('--from', name, '-m', MODEL, '-o', again))
                self.assertEqual(self.read(again), self.read(name))

    def test_recipe_does_not_record_threads(self):
        report = json.loads(self.succeed(self.generate('-o', 'a.gif', '--threads', 1, '--json')).stdout)
        self.assertNotIn('threads', report['recipe'])
        recipe = json.loads((self.folder / 'a.gif.json').read_text())
        self.assertNotIn('threads', recipe)
        (self.folder / 'a.gif.json').write_text(json.dumps(recipe | {'threads': 3}))  # recipes of older versions contain threads
        shown = self.succeed(self.run_program('config', 'show', '--from', 'a.gif', '-m', MODEL)).stdout
        self.assertNotRegex(shown, '(?m)^threads: 3')
        self.succeed(self.render('--from', 'a.gif', '-m', MODEL, '-o', 'b.gif'))
        self.assertEqual(self.read('a.gif'), self.read('b.gif'))

    def test_recipe_with_an_empty_prompt_is_rendered_again(self):
        """Recipes of older versions may have an empty prompt."""
        self.succeed(self.generate('-o', 'a.y4m'))
        recipe = json.loads((self.folder / 'a.y4m.json').read_text())
        (self.folder / 'a.y4m.json').write_text(json.dumps(recipe | {'prompt': ''}))
        self.succeed(self.render('--from', 'a.y4m', '-m', MODEL, '-o', 'b.y4m', '--count', 2))
        self.assertEqual(self.recipe('b-2.y4m')['prompt'], '')
        self.fail_with(self.render('--from', 'a.y4m', '-m', MODEL, '-p', '', '-o', 'c.y4m'), 2, '--prompt is empty')

    def test_decoded_latents_are_rendered_again(self):
        self.succeed(self.generate('-o', 'a.gif', '--save-latents', 'latents.safetensors'))
        self.succeed(self.run_program('decode', 'latents.safetensors', '-m', MODEL, '-o', 'b.mp4', '--crf', 28, '--vae-tiling', 'on'))
        self.succeed(self.render('--from', 'b.mp4', '-m', MODEL, '-o', 'c.mp4'))
        self.assertEqual(self.read('b.mp4'), self.read('c.mp4'))

    def test_latents_are_decoded_as_they_were_made(self):
        self.succeed(self.generate('-o', 'a.mp4', '--dtype', 'bf16', '--save-latents', 'latents.safetensors'))
        decode = ['decode', 'latents.safetensors', '-m', MODEL, '--device', 'cpu']
        self.assertEqual(self.succeed(self.run_program(*decode, '-o', 'b.mp4')).stderr.count('warning'), 0)
        self.assertEqual(self.read('b.mp4'), self.read('a.mp4'))
        other = self.succeed(self.run_program(*decode, '-o', 'c.mp4', '--dtype', 'fp32'))
        self.assertIn('decoded in fp32 on cpu, but the latents were made in bf16 on cpu', other.stderr)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, 'one CPU is like another')
    def test_video_file_is_the_same_on_one_cpu_and_on_all(self):
        self.succeed(self.generate('-o', 'a.mp4', '--size', '256x256', '--steps', 1, '--save-latents', 'latents.safetensors'))
        one = {min(os.sched_getaffinity(0))}
        self.succeed(self.run_program('decode', 'latents.safetensors', '-m', MODEL, '-o', 'all.mp4', '--device', 'cpu'))
        self.succeed(self.run_program('decode', 'latents.safetensors', '-m', MODEL, '-o', 'one.mp4', '--device', 'cpu',
                                      preexec_fn=lambda: os.sched_setaffinity(0, one)))
        self.assertEqual(self.read('one.mp4'), self.read('all.mp4'))

    def test_command_line_and_config_file_override_the_recipe(self):
        self.succeed(self.generate('-o', 'a.mp4', '--seed', 3, '--crf', 30, '--topk', 0.4))
        (self.folder / 'my.yaml').write_text('seed: 8\ncfg_scale: 2\n')
        shown = self.succeed(self.run_program('config', 'show', '--from', 'a.mp4', '-m', MODEL, '--config', 'my.yaml', '--cfg-scale', 4,
                                              '--cdf', 0.9, '-o', 'b.gif')).stdout
        rows = {line.split(': ')[0]: line.split(': ', 1)[1].split() for line in shown.splitlines()}
        self.assertEqual(rows['seed'][0], '8')
        self.assertEqual(rows['cfg_scale'][0], '4.0')
        self.assertEqual(rows['steps'], ['2', '#', 'recipe', 'of', 'a.mp4'])
        self.assertEqual(rows['prompt'][-1], 'a.mp4')
        self.assertNotIn('topk', rows)
        self.assertNotIn('crf', rows)
        self.succeed(self.render('--from', 'a.mp4', '-m', MODEL, '--seed', 9, '--attention', 'full', '-o', 'b.gif'))
        recipe = self.recipe('b.gif')
        self.assertEqual((recipe['seed'], recipe['attention'], recipe['prompt'], recipe['steps']), (9, 'full', PROMPT, 2))

    def shown_means(self, *arguments):
        shown = self.succeed(self.run_program('config', 'show', '-m', MODEL, *arguments)).stdout
        rows = {line.split(': ')[0]: line.split(': ', 1)[1] for line in shown.splitlines()}
        return {key: json.loads(rows[key].split(' # ')[0]) for key in ('dropped', 'select', 'cell', 'topk', 'error', 'profile') if key in rows}

    def test_recipes_record_what_replaced_dropped_blocks(self):
        self.succeed(self.generate('-o', 'a.gif', '--topk', 0.3, '--dropped', 'mean', '--cell', 32))
        recipe = self.recipe('a.gif')
        self.assertEqual([recipe[key] for key in ('dropped', 'select', 'cell', 'topk')], ['mean', 'error', 32, 0.3])
        self.assertEqual(self.shown_means('--from', 'a.gif'), {'dropped': 'mean', 'select': 'error', 'cell': 32, 'topk': 0.3})
        self.succeed(self.generate('-o', 'b.gif', '--topk', 0.3, '--dropped', 'none'))
        recipe = self.recipe('b.gif')
        self.assertEqual((recipe['dropped'], recipe['select']), ('none', 'mass'))
        self.assertNotIn('cell', recipe)
        self.succeed(self.generate('-o', 'c.gif', '--error', 0.05, '--cell', 16))
        recipe = self.recipe('c.gif')
        self.assertEqual([recipe[key] for key in ('dropped', 'select', 'cell', 'error')], ['mean', 'error', 16, 0.05])
        self.assertNotIn('topk', recipe)
        self.succeed(self.generate('-o', 'e.gif', '--block-error', 0.01))
        self.assertEqual([self.recipe('e.gif')[key] for key in ('dropped', 'select', 'block_error')], ['mean', 'error', 0.01])
        self.succeed(self.generate('-o', 'd.gif', '--attention', 'full'))
        self.assertNotIn('dropped', self.recipe('d.gif'))

    def test_old_recipes_without_means_use_the_published_method(self):
        self.succeed(self.generate('-o', 'a.gif', '--size', '192x192', '--topk', 0.3, '--dropped', 'none', '--select', 'mass'))
        path = self.folder / 'a.gif.json'
        recipe = json.loads(path.read_text())
        path.write_text(json.dumps({key: value for key, value in recipe.items() if key not in ('dropped', 'select', 'cell')}))
        published = {'dropped': 'none', 'select': 'mass', 'topk': 0.3}
        self.assertEqual(self.shown_means('--from', 'a.gif'), published)
        self.succeed(self.render('--from', 'a.gif', '-m', MODEL, '-o', 'b.gif'))
        self.assertEqual(self.read('a.gif'), self.read('b.gif'))
        self.assertEqual({key: self.recipe('b.gif')[key] for key in published}, published)
        means = {'dropped': 'mean', 'select': 'error', 'cell': 32}
        self.assertEqual(self.shown_means('--from', 'a.gif', '--dropped', 'mean', '--cell', 32), means | {'topk': 0.3})
        self.assertEqual(self.shown_means('--from', 'a.gif', '--error', 0.05, '--cell', 32), means | {'error': 0.05})
        self.assertEqual(self.shown_means('--from', 'a.gif', '--attention', 'full'), {})
        self.warn_with(self.render('--from', 'a.gif', '-m', MODEL, '--cell', 32, '-o', 'c.gif'),
                       '--cell 32 has no effect with a.gif: dropped none, which has no means')
        self.assertEqual(self.read('a.gif'), self.read('c.gif'))

    def test_models_that_come_with_the_program_are_found_by_name(self):
        weights = ROOT / 'configs' / 'tiny.yaml'
        small = ['--size', '64x64', '--frames', 9, '--steps', 1, '--device', 'cpu']
        self.succeed(self.render('--random-weights', weights, '-o', 'a.mp4', *small))
        self.succeed(self.render('--from', 'a.mp4', '-o', 'b.mp4'))
        self.assertEqual(self.read('a.mp4'), self.read('b.mp4'))
        shown = self.succeed(self.run_program('config', 'show', '-p', PROMPT, '--device', 'cpu')).stdout
        self.assertIn('assets/tiny', shown)
        self.succeed(self.render('-p', PROMPT, '-o', 'c.gif', *small))
        shown = self.succeed(self.run_program('config', 'show', '--from', 'c.gif')).stdout
        self.assertRegex(shown, r'model: ".*assets/tiny" +# recipe of c.gif')

    def test_other_models_and_latents_must_be_named(self):
        self.succeed(self.generate('-o', 'a.mp4', '--save-latents', 'noise.safetensors'))
        self.fail_with(self.render('--from', 'a.mp4', '-o', 'b.mp4'), 2, '--from a.mp4', 'model pipeline', '-m')
        self.succeed(self.generate('-o', 'c.mp4', '--init-latents', 'noise.safetensors'))
        self.fail_with(self.render('--from', 'c.mp4', '-m', MODEL, '-o', 'b.mp4'), 2, 'noise.safetensors', '--init-latents')
        self.succeed(self.render('--from', 'c.mp4', '-m', MODEL, '--init-latents', 'noise.safetensors', '-o', 'd.mp4'))
        self.assertEqual(self.read('c.mp4'), self.read('d.mp4'))

    def test_profiles_must_be_named_again_and_keep_the_other_options(self):
        self.succeed(self.run_program('tune', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '--size', '192x192', '--steps', 2, '--samples', 2,
                                      '--videos', 0, '--l1', 0.5, '--l2', 0.6, '--quiet', '-o', 'p.yaml'))
        self.succeed(self.generate('-o', 'a.mp4', '--size', '192x192', '--profile', 'p.yaml', '--dense-steps', 1))
        self.fail_with(self.render('--from', 'a.mp4', '-m', MODEL, '-o', 'b.mp4'), 2, 'p.yaml', '--profile')
        again = self.succeed(self.render('--from', 'a.mp4', '-m', MODEL, '--profile', 'p.yaml', '-o', 'b.mp4'))
        self.assertNotIn('differs', again.stderr)
        self.assertEqual(self.read('a.mp4'), self.read('b.mp4'))
        profile = (self.folder / 'p.yaml').read_text()
        self.assertIn('l1: 0.5', profile)
        (self.folder / 'q.yaml').write_text(profile.replace('l1: 0.5', 'l1: 0.4'))
        other = self.succeed(self.render('--from', 'a.mp4', '-m', MODEL, '--profile', 'q.yaml', '-o', 'c.mp4'))
        self.assertIn('the profile is not the one that a.mp4 was made with', other.stderr)
        for arguments in (['--topk', 0.3], ['--dropped', 'mean'], ['--attention', 'full']):
            self.succeed(self.render('--from', 'a.mp4', '-m', MODEL, '-o', 'd.mp4', *arguments))
            self.assertNotIn('profile', self.recipe('d.mp4'))

    def test_recipe_records_the_means_of_a_profile_and_keeps_them_without_it(self):
        self.succeed(self.run_program('tune', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '--size', '192x192', '--steps', 1, '--samples', 1, '--videos', 0,
                                      '--dropped', 'mean', '--select', 'mass', '--cell', 32, '--quiet', '-o', 'p.yaml'))
        self.succeed(self.generate('-o', 'a.gif', '--size', '192x192', '--profile', 'p.yaml'))
        recipe = self.recipe('a.gif')
        self.assertEqual([recipe[key] for key in ('dropped', 'select', 'cell', 'profile')], ['mean', 'mass', 32, 'p.yaml'])
        self.succeed(self.render('--from', 'a.gif', '-m', MODEL, '--profile', 'p.yaml', '-o', 'b.gif'))
        self.assertEqual(self.read('a.gif'), self.read('b.gif'))
        self.assertEqual(self.shown_means('--from', 'a.gif', '--topk', 0.3), {'dropped': 'mean', 'select': 'mass', 'cell': 32, 'topk': 0.3})
        self.assertEqual(list(self.shown_means('--from', 'a.gif', '--profile', 'p.yaml')), ['profile'])

    def test_warns_of_another_model_and_other_latents(self):
        self.succeed(self.generate('-o', 'a.mp4', '--save-latents', 'noise.safetensors'))
        self.succeed(self.generate('-o', 'b.mp4', '--init-latents', 'noise.safetensors', '--save-latents', 'other.safetensors'))
        result = self.succeed(self.render('--from', 'b.mp4', '-m', MODEL, '--init-latents', 'other.safetensors', '-o', 'c.mp4'))
        self.assertIn('the file of --init-latents is not the one', result.stderr)
        weights = ROOT / 'configs' / 'tiny.yaml'
        self.succeed(self.render('--random-weights', weights, '-o', 'd.mp4', '--size', '64x64', '--frames', 9, '--steps', 1, '--device', 'cpu'))
        result = self.succeed(self.render('--from', 'd.mp4', '-m', MODEL, '-p', PROMPT, '--max-sequence-length', 16, '-o', 'e.mp4'))
        self.assertIn('the model is not the one', result.stderr)

    def test_names_an_unknown_field_with_a_useful_remedy(self):
        self.succeed(self.generate('-o', 'a.gif', '--frames', 1))
        path = self.folder / 'a.gif.json'
        recipe = json.loads(path.read_text())
        for version, words in ((recipe['version'], 'it was changed'), ('9.9.9', 'use version 9.9.9 of the program, or ')):
            path.write_text(json.dumps(recipe | {'version': version, 'sharpness': 1}))
            result = self.render('--from', 'a.gif', '-m', MODEL, '-o', 'b.gif')
            self.fail_with(result, 2, 'sharpness', words, 'give the options one by one')
            self.assertEqual(version in result.stderr, version == '9.9.9')

    def test_warns_of_a_recipe_of_another_version(self):
        self.succeed(self.generate('-o', 'a.gif'))
        recipe = json.loads(self.read('a.gif.json'))
        (self.folder / 'a.gif.json').write_text(json.dumps(recipe | {'version': '9.9.9'}))
        result = self.succeed(self.render('--from', 'a.gif', '-m', MODEL, '-o', 'b.gif'))
        self.assertIn('a.gif was made by version 9.9.9', result.stderr)
        self.assertNotIn('version', self.succeed(self.render('--from', 'b.gif', '-m', MODEL, '-o', 'c.gif')).stderr)

    def test_refuses_files_without_a_recipe(self):
        self.succeed(self.generate('-o', 'a.mp4', '--no-metadata'))
        (self.folder / 'text.mp4').write_text('no video')
        (self.folder / 'other.gif').write_text('GIF89a')
        (self.folder / 'other.gif.json').write_text('{"title": "of another program"}')
        for name in ('a.mp4', 'text.mp4', 'none.mp4', 'none.gif', 'other.gif', 'a' * 300 + '.mp4', '.'):
            self.fail_with(self.render('--from', name, '-m', MODEL, '-o', 'b.mp4'), 2, name)

    def test_says_that_a_recipe_was_cut_off(self):
        self.succeed(self.generate('-o', 'a.gif'))
        recipe = self.folder / 'a.gif.json'
        recipe.write_text(recipe.read_text()[:-10])
        self.fail_with(self.render('--from', 'a.gif', '-m', MODEL, '-o', 'b.mp4'), 2, '--from a.gif', 'cut off')

    def test_recipe_cannot_name_files_to_read_or_write(self):
        self.succeed(self.generate('-o', 'a.gif'))
        recipe = json.loads((self.folder / 'a.gif.json').read_text())
        for key, value in (('report', 'r.json'), ('save_latents', 'l.safetensors'), ('output', 'x.mp4'), ('prompt_file', '/etc/passwd'),
                           ('steps', [1]), ('steps', 'many'), ('topk', 0.3)):
            with self.subTest(key):
                (self.folder / 'a.gif.json').write_text(json.dumps(recipe | {key: value} | ({'cdf': 0.5} if key == 'topk' else {})))
                self.fail_with(self.render('--from', 'a.gif', '-m', MODEL, '-o', 'b.gif'), 2, 'a.gif', key)
        self.assertEqual(self.names(), ['a.gif', 'a.gif.json'])
        (self.folder / 'a.gif.json').write_text(json.dumps(recipe | {'model': '../../etc'}))
        self.fail_with(self.render('--from', 'a.gif', '-o', 'b.gif'), 2, 'a.gif', '../../etc')

    def test_outputs_never_replace_the_video_they_come_from(self):
        self.succeed(self.generate('-o', 'video.mp4'))
        self.succeed(self.generate('-o', 'a.gif'))
        before = {name: self.read(name) for name in self.names()}
        self.fail_with(self.render('--from', 'video.mp4', '-m', MODEL, '-o', 'video.mp4'), 2, '--from', '--output', 'same file')
        self.fail_with(self.render('--from', 'a.gif', '-m', MODEL, '-o', 'a.gif'), 2, 'same file')
        self.fail_with(self.render('--from', 'a.gif', '-m', MODEL, '-o', 'b.mp4', '--report', 'a.gif.json'), 2, 'same file')
        self.assertEqual(before, {name: self.read(name) for name in self.names()})


if __name__ == '__main__':
    unittest.main()
