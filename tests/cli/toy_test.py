"""The tests' own family: what of a row the suites that run on any family do not show."""
import json
import math
import shutil
import struct
import unittest

from support import MODEL, PROMPT, CommandLineTest


class Toy(CommandLineTest):
    def inspect(self, model):
        return json.loads(self.succeed(self.run_program('inspect', model, '--json')).stdout)

    def test_inspect_sees_every_transformer(self):
        summary = self.inspect(MODEL)
        components = {component['name']: component for component in summary['components']}
        self.assertEqual(components['transformer_2']['parameters'], components['transformer']['parameters'])
        self.assertEqual((summary['family'], summary['width'], summary['frames']), ('Toy', 64, 7))
        weights = {name: 4 * component['parameters'] for name, component in components.items()}
        self.assertEqual(summary['memory'][1]['weights'], weights['transformer'] + weights['vae'])  # in fp32; encoding a text needs less in all

    def test_a_part_that_is_optional_may_be_missing(self):
        model = self.copy_of_the_model()
        shutil.rmtree(model / 'transformer_2')
        index = json.loads((model / 'model_index.json').read_text())
        del index['boundary_ratio']
        for entry in ([None, None], None):
            index.pop('transformer_2')
            if entry:
                index['transformer_2'] = entry
            (model / 'model_index.json').write_text(json.dumps(index))
            self.assertEqual([component['name'] for component in self.inspect(model)['components']],
                             ['scheduler', 'text_encoder', 'tokenizer', 'transformer', 'vae'])
            self.succeed(self.run_program('generate', '-m', model, '-p', PROMPT, '--device', 'cpu', '-o', 'one.safetensors'))

    def test_each_step_takes_the_transformer_of_its_timestep(self):
        # The shift keeps the first three of four steps above half of the noise.
        model = self.copy_of_the_model()
        for name, step in (('transformer_2', 4), ('transformer', 1)):
            weights = model / name / 'diffusion_pytorch_model.safetensors'
            data = bytearray(weights.read_bytes())
            size, = struct.unpack('<Q', data[:8])
            begin = 8 + size + json.loads(data[8:8 + size])['head.bias']['data_offsets'][0]
            data[begin:begin + 4] = struct.pack('<f', math.nan)
            weights.write_bytes(data)
            self.fail_with(self.run_program('generate', '-m', model, '-p', PROMPT, '--device', 'cpu', '--steps', 4, '-o', 'a.mp4'), 1,
                           f'step {step}: the denoiser')

    def test_the_negative_prompt_is_the_models_unless_given(self):
        usual = self.frames('a.safetensors')
        self.assertEqual(usual, self.frames('b.safetensors', '-n', 'grey'))
        self.assertNotEqual(usual, self.frames('c.safetensors', '-n', ''))
        recipe = self.succeed(self.run_program('config', 'show', '-m', MODEL, '-p', PROMPT, '--device', 'cpu')).stdout
        self.assertIn('grey', recipe)

    def test_the_row_cleans_the_prompt(self):
        self.assertEqual(self.frames('a.safetensors'), self.frames('b.safetensors', '-p', '  ' + PROMPT.replace(' ', ' &nbsp; ')))

    def test_bench_pipeline(self):
        report = json.loads(self.succeed(self.run_program('bench', 'pipeline', '-m', MODEL, '--device', 'cpu', '--steps', 2, '--modes', 'full,sparse',
                                                          '--warmup', 0, '--quiet', '--json')).stdout)
        self.assertEqual([row['stage'] for row in report['rows']],
                         ['load text_encoder', 'text', 'load transformer', 'step', 'step', 'load vae', 'decode', 'encode'])
        self.assertIn('transformer_2', report['architecture'])

    def test_a_fields_row_is_an_option_everywhere(self):
        self.assertIn('--draft', self.succeed(self.run_program('generate', '--help')).stdout)
        make = ['generate', '-m', MODEL, '-p', PROMPT, '--device', 'cpu', '--json', '--quiet', '--frames', 1]

        def recipe(*arguments):
            return json.loads(self.succeed(self.run_program(*make, *arguments)).stdout)['recipe']
        asked = recipe('--draft', '-o', 'a.mp4')
        self.assertEqual((asked['draft'], asked['steps']), (True, 1))
        self.assertNotIn('draft', recipe('-o', 'b.mp4'))
        (self.folder / 'c.yaml').write_text('draft: true\n')
        self.assertEqual(recipe('--config', 'c.yaml', '-o', 'c.mp4'), asked)
        again = json.loads(self.succeed(self.run_program('generate', '-m', MODEL, '--device', 'cpu', '--from', 'a.mp4', '-o', 'd.mp4', '--json')).stdout)
        self.assertEqual(again['recipe'], asked)
        self.fail_with(self.run_program(*make, '--config', 'c.yaml', '--draft=maybe'), 2, '--draft')

    def test_a_fields_row_is_part_of_what_resume_compares(self):
        def rendered(draft):
            (self.folder / 'set.jsonl').write_text(json.dumps({'prompt': PROMPT, 'draft': draft}))
            report = self.succeed(self.run_program('batch', 'set.jsonl', '-o', 'out', '-m', MODEL, '--device', 'cpu', '--frames', 1, '--steps', 2,
                                                   '--quiet', '--json')).stdout
            return json.loads(report)['set']['rendered']
        self.assertEqual([rendered(True), rendered(True), rendered(False)], [1, 0, 1])


if __name__ == '__main__':
    unittest.main()
