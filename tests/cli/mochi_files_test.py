"""Tests files of other programs in which Mochi's tensors have its authors' names and layout. The frames must equal those of the diffusers folder with the same
weights."""
import shutil
import struct
import unittest
from pathlib import Path

import quantized
import single_files
from published import DIFFUSION_MODEL, MOCHI, MOCHI_VAE, mochi_as_authors, prefixed, renamed
from support import MODEL

TEXT = 'text_encoders.t5xxl.transformer.'


def numbers_of(data):
    """Returns the numbers that these bytes hold in fp16."""
    return struct.unpack(f'<{len(data) // 2}e', data)


class MochiFiles(single_files.Models):
    sources = {'mochi': MODEL}
    small = ['-p', 'a red circle', '-n', 'grey', '--device', 'cpu', '--dtype', 'fp32', '--steps', 2, '--size', '64x64', '--frames', 7]

    def folder_of(self, source, name='model'):
        return Path(shutil.copytree(source, self.folder / name))

    def part(self, role):
        """Returns a component's tensors as Mochi's authors store them."""
        tensors = self.weights('mochi', role)
        return mochi_as_authors(tensors) if role == 'transformer' else mochi_as_authors(tensors, MOCHI_VAE) if role == 'vae' else tensors

    def usual(self, *arguments):
        return self.video('-m', self.models['mochi'], *arguments)

    def with_transformer(self, file, *arguments):
        return self.video('-m', self.models['mochi'], '--transformer', file, *arguments)


class Folders(MochiFiles):
    def test_reads_a_comfyui_folder(self):
        self.write('comfy/split_files/diffusion_models/mochi_preview_bf16.safetensors', prefixed(DIFFUSION_MODEL, self.part('transformer')))
        self.write('comfy/split_files/vae/mochi_vae.safetensors', self.part('vae'))
        self.write('comfy/split_files/text_encoders/t5xxl_fp16.safetensors', self.part('text_encoder'))
        self.tokenizer('mochi', 'comfy/split_files/text_encoders/tokenizer')
        self.assertEqual(self.video('-m', 'comfy'), self.usual())

    def test_reads_the_folder_of_the_authors(self):
        vae = self.part('vae')
        self.write('weights/dit.safetensors', self.part('transformer'))
        for part in ('decoder', 'encoder'):  # separate files, in which the tensors' names do not tell encoder from decoder
            self.write(f'weights/{part}.safetensors', {name[len(part) + 1:]: tensor for name, tensor in vae.items() if name.startswith(part)})
        self.refused(["dit.safetensors: is the transformer of mochi, but the model's text_encoder is missing"], '-m', 'weights')
        self.write('t5/model.safetensors', self.part('text_encoder'))
        self.tokenizer('mochi', 't5/tokenizer')
        self.assertEqual(self.video('-m', 'weights', '--text-encoder', 't5/model.safetensors'), self.usual())
        self.refused(['encoder.safetensors: holds no vae of a known model'], '-m', 'weights', '--text-encoder', 't5/model.safetensors', '--vae', 'weights/encoder.safetensors')

    def test_reads_a_gguf_folder(self):
        (self.folder / 'gguf').mkdir()
        quantized.write_gguf(self.folder / 'gguf' / 'mochi.gguf', self.part('transformer'), architecture='mochi')
        self.write('gguf/mochi_vae.safetensors', self.part('vae'))
        self.write('gguf/t5.safetensors', self.part('text_encoder'))
        self.tokenizer('mochi', 'gguf/tokenizer')
        self.assertEqual(self.video('-m', 'gguf'), self.usual())

    def test_reads_all_parts_from_one_file(self):
        self.write('download/all_in_one/mochi.safetensors', prefixed(DIFFUSION_MODEL, self.part('transformer')) | prefixed('vae.', self.part('vae')) | prefixed(TEXT, self.part('text_encoder')))
        self.tokenizer('mochi', 'download/all_in_one/tokenizer')
        usual = self.usual()
        self.assertEqual(self.video('-m', 'download/all_in_one/mochi.safetensors'), usual)
        self.assertEqual(self.video('-m', 'download', '--vae', self.models['mochi'] / 'vae' / 'diffusion_pytorch_model.safetensors'), usual)


class OneFile(MochiFiles):
    def test_makes_the_frames_of_the_folder(self):
        usual, vae = self.usual(), self.part('vae')
        for name, tensors in (('bare', self.part('transformer')), ('prefixed', prefixed('diffusion_model.', self.part('transformer'))), ('diffusers', self.weights('mochi', 'transformer'))):
            with self.subTest(name):
                self.assertEqual(self.with_transformer(self.write('one.safetensors', tensors)), usual)
        decoder = {name: tensor for name, tensor in vae.items() if name.startswith('decoder.')}
        for name, tensors in (('both', vae), ('decoder', decoder), ('bare', {each[len('decoder.'):]: tensor for each, tensor in decoder.items()}), ('diffusers', self.weights('mochi', 'vae'))):
            with self.subTest(vae=name):
                self.assertEqual(self.video('-m', self.models['mochi'], '--vae', self.write('vae.safetensors', tensors)), usual)
        changed = dict(vae)
        dtype, shape, data = vae['decoder.output_proj.bias']
        changed['decoder.output_proj.bias'] = (dtype, shape, b'\0\x30' * (len(data) // 2))
        self.assertNotEqual(self.video('-m', self.models['mochi'], '--vae', self.write('vae.safetensors', changed)), usual)

    def formats(self):
        """Yields (format, function that packs a matrix). The function takes a name, numbers and a number of rows. It returns the dtype, the bytes, the numbers that the
        bytes represent, and the scales."""
        scale = struct.unpack('<f', struct.pack('<f', 0.003))[0]

        def by_row(numbers, rows):
            columns, packed = len(numbers) // rows, []
            scales = [struct.unpack('<f', struct.pack('<f', 0.002 + 0.0005 * (row % 7)))[0] for row in range(rows)]
            for row, each in enumerate(scales):
                packed.append(quantized.int8(numbers[row * columns:(row + 1) * columns], each))
            return 'I8', b''.join(data for _, data, _ in packed), [value for _, _, values in packed for value in values], ([rows, 1], scales)
        yield 'fp8_scaled', lambda _, numbers, rows: (*quantized.e4m3(numbers, scale), ([], [scale]))
        yield 'fp8_scaled, vectors in 8 bits too', lambda _, numbers, rows: (*quantized.e4m3(numbers, scale), ([], [scale]))
        yield 'int8_by_row', lambda _, numbers, rows: by_row(numbers, rows)
        yield 'gguf', lambda name, numbers, rows: (*(quantized.q4_0 if '.ff' in name else quantized.q8_0)(numbers), None)

    def test_quantized_files_make_the_frames_of_their_unpacked_weights(self):
        for form, packing in self.formats():
            packed, twin = {}, {}  # the twin is a file with the same numbers in fp32, under diffusers' names
            for name, (_, shape, data) in self.weights('mochi', 'transformer').items():
                is_matrix = name.startswith('transformer_blocks.') and len(shape) == 2 and shape[-1] % 32 == 0
                rest = quantized.f32 if 'vectors' not in form else lambda numbers: quantized.e4m3(numbers, 1)
                dtype, bytes_, values, *scales = packing(name, numbers_of(data), shape[0]) if is_matrix else rest(numbers_of(data))
                packed[name], twin[name] = (dtype, shape, bytes_), ('F32', shape, quantized.f32(values)[1])
                if is_matrix and form != 'gguf':
                    (scale_shape, numbers), = scales
                    packed[name.replace('.weight', '.weight_scale' if form == 'int8_by_row' else '.scale_weight')] = ('F32', scale_shape, quantized.f32(numbers)[1])
                    packed[name.replace('.weight', '.scale_input')] = ('F32', [], struct.pack('<f', 1))
            packed = mochi_as_authors(packed)
            self.assertIn('blocks.0.attn.qkv_x.weight', packed)
            file = quantized.write_gguf(self.folder / 'one.gguf', packed) if form == 'gguf' else self.write('one.safetensors', packed | {'scaled_fp8': ('F8_E4M3', [0], b'')})
            with self.subTest(form):
                frames = self.with_transformer(file)
                self.assertEqual(frames, self.with_transformer(self.write('twin.safetensors', twin)))
                self.assertNotEqual(frames, self.usual())
                file.write_bytes(file.read_bytes()[:-100])
                self.refused([file.name, 'truncated'], '-m', self.models['mochi'], '--transformer', file)

    def test_refuses_files_that_do_not_fit_and_uses_their_tensor_names(self):
        def missing(tensors):
            del tensors['blocks.1.attn.qkv_x.weight']

        def misshaped(tensors):
            dtype, shape, data = tensors['blocks.0.attn.qkv_y.weight']
            tensors['blocks.0.attn.qkv_y.weight'] = (dtype, [95, 16], data[:95 * 32])

        def odd(tensors):
            dtype, shape, data = tensors['blocks.0.mlp_x.w1.weight']
            tensors['blocks.0.mlp_x.w1.weight'] = (dtype, [169, 32], data[:169 * 64])

        def unknown(tensors):
            tensors['blocks.0.attn.qkv_z.weight'] = ('F16', [1], bytes(2))

        def twice(tensors):
            tensors['transformer_blocks.1.norm1_context.linear_1.bias'] = tensors['blocks.1.mod_y.bias']

        def deep(tensors):
            tensors |= {name.replace('.1.', '.2.', 1): tensor for name, tensor in tensors.items() if name.startswith('blocks.1.')}
        for change, words in ((missing, ['missing: "blocks.1.attn.qkv_x.weight"']), (misshaped, ['"blocks.0.attn.qkv_y.weight" is [95, 16], expected [32, 16]']),
                              (odd, ['misshaped: "blocks.0.mlp_x.w1.weight" is [169, 32], expected [170, 32]']), (unknown, ['1 unexpected: "blocks.0.attn.qkv_z.weight"']),
                              (twice, ['"blocks.1.mod_y.bias"', '"transformer_blocks.1.norm1_context.linear_1.bias"', 'one tensor']),
                              (deep, ['does not fit', 'num_layers is 3, not 2'])):
            tensors = self.part('transformer')
            change(tensors)
            with self.subTest(change.__name__):
                self.refused([self.write('one.safetensors', tensors).name, *words], '-m', self.models['mochi'], '--transformer', self.folder / 'one.safetensors')


class Loras(MochiFiles):
    """Tests LoRAs for q, k, v and other layers whose rows the authors store in another order. A LoRA under the authors' names and one under diffusers' names must
    change the weights equally, whichever names the weights have."""
    changed = ('to_q', 'to_k', 'to_v', 'add_q_proj', 'add_k_proj', 'add_v_proj', 'net.0.proj', 'norm_out.linear', 'norm1_context.linear_1')
    rank = 2

    def layers(self):
        """Returns {diffusers' name of a layer: (A, B)}, the matrices of a LoRA. q, k and v share one A, as in the authors' layer that joins all three."""
        layers = {}
        for name, (_, (rows, *columns), _) in self.weights('mochi', 'transformer').items():
            layer = name[:-len('.weight')]
            if not name.endswith('.weight') or not layer.endswith(self.changed):
                continue
            down = quantized.halves([0.02 * (i * 7 % 11 - 5) for i in range(self.rank * columns[0])])
            up = quantized.halves([0.03 * ((i * 5 + len(layers)) % 13 - 6) for i in range(rows * self.rank)])
            layers[layer] = (('F16', [self.rank, columns[0]], down), ('F16', [rows, self.rank], up))
        return layers

    def test_change_the_same_rows_under_both_naming_schemes(self):
        layers = self.layers()
        ours = self.write('ours.safetensors', {f'transformer.{layer}.lora_{matrix}.weight': tensor for layer, both in layers.items() for matrix, tensor in zip('AB', both)})
        up = mochi_as_authors({f'{layer}.lora_B.weight': tensor for layer, (_, tensor) in layers.items()})
        down = {renamed(f'{layer}.lora_A.weight', MOCHI): tensor for layer, (tensor, _) in layers.items() if f'{renamed(layer, MOCHI)}.lora_B.weight' in up}
        self.assertEqual(len(up), len(down))
        theirs = self.write('theirs.safetensors', prefixed('diffusion_model.', up | down))
        usual = self.usual('--lora', ours, '--strict-lora')
        self.assertNotEqual(usual, self.usual())
        trainers = self.write('trainers.safetensors', {name[:-len('.weight')]: tensor for name, tensor in (up | down).items()})  # the authors' training program leaves out ".weight"
        for lora in (theirs, trainers):
            self.assertEqual(self.usual('--lora', lora, '--strict-lora'), usual)
        file = self.write('one.safetensors', self.part('transformer'))
        self.assertEqual(self.with_transformer(file, '--lora', ours, '--strict-lora'), usual)
        self.assertEqual(self.with_transformer(file, '--lora', theirs, '--strict-lora'), usual)
        shown = self.succeed(self.run_program('inspect', theirs)).stdout
        self.assertIn('Mochi', shown)


if __name__ == '__main__':
    unittest.main()
