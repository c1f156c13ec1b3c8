"""Tests --text-encoder and --tokenizer, which replace the model's text encoder and tokenizer by files of other programs with other names of tensors."""
import json
import re
import shutil
import struct
import unittest
from pathlib import Path

import quantized
from published import authors_t5_name, llama_t5_name
from support import FAMILY, MODEL, CommandLineTest, Long, read_weights, write_safetensors

DATA = Path(__file__).resolve().parents[1] / 'parity' / 'data'
SPIECE = Path(MODEL) / 'tokenizer' / 'spiece.model'
WANTED = {'Wan': 'google/umt5-xxl', 'CogVideoX': 'google/t5-v1_1-xxl'}[FAMILY.name]
SCALE = struct.unpack('<f', struct.pack('<f', 0.003))[0]


def comfy(name):
    return 'text_encoders.umt5xxl.transformer.' + name


def is_linear(name, shape):
    return len(shape) == 2 and '.DenseReluDense.' in name or re.search(r'SelfAttention\.[qkvo]\.', name) is not None


def fp8_scaled(name, shape, numbers):
    if not is_linear(name, shape):
        return quantized.f16(numbers), {}
    return quantized.e4m3(numbers, SCALE), {name.replace('.weight', '.scale_weight'): ('F32', [], struct.pack('<f', SCALE))}


def comfy_quant(name, shape, numbers):
    if not is_linear(name, shape):
        return quantized.f16(numbers), {}
    text = json.dumps({'format': 'float8_e4m3fn'}).encode()
    return quantized.e4m3(numbers, SCALE), {name.replace('.weight', '.weight_scale'): ('F32', [1], struct.pack('<f', SCALE)),
                                            name.replace('.weight', '.comfy_quant'): ('U8', [len(text)], text)}


def int8_rows(name, shape, numbers):
    if len(shape) < 2 or 'relative' in name:
        return quantized.f16(numbers), {}
    data, values, scales = b'', [], b''
    for row in range(shape[0]):
        own = numbers[row * shape[1]:(row + 1) * shape[1]]
        scale, = struct.unpack('<f', struct.pack('<f', max(map(abs, own)) / 127 or 1))
        _, steps, back = quantized.int8(own, scale)
        data, values, scales = data + steps, values + back, scales + struct.pack('<f', scale)
    return ('I8', data, values), {name.replace('.weight', '.weight_scale'): ('F32', [shape[0], 1], scales)}


def all_fp8(name, shape, numbers):
    return quantized.e4m3(numbers, 1), {}


def mixed(name, shape, numbers):
    if len(shape) < 2 or shape[-1] % 32:
        return quantized.f16(numbers), {}
    return (quantized.q4_0 if name == 'shared.weight' or '.wi_' in name else quantized.q8_0)(numbers), {}


def halves(name, shape, numbers):
    return quantized.f16(numbers), {}


class TextTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.model = self.copy_of_the_model()
        self.usual = self.video()

    def video(self, *arguments, model=None):
        return Long(self.frames('a.safetensors', '-m', model or self.model, '--steps', 1, *arguments))

    def refused(self, *arguments, words, model=None):
        self.fail_with(self.generate('-m', model or self.model, *arguments, '-o', 'clip.mp4'), 2, *words)
        self.assertFalse((self.folder / 'clip.mp4').exists())

    def packed(self, packing=halves, spelling=str, more=None, drop='', rows=None):
        """Packs the model's text encoder. Returns the tensors of the packed file, and fp32 tensors with the same numbers under transformers' names."""
        file, twin = {}, {}
        for name, (dtype, shape, data) in read_weights(Path(MODEL) / 'text_encoder').items():
            if name == drop:
                continue
            if rows and name == 'shared.weight':
                shape, data = [rows, shape[1]], data[:rows * shape[1] * 2]
            (kind, bytes_, values), beside = packing(name, shape, struct.unpack(f'<{len(data) // 2}e', data))
            file[spelling(name)] = (kind, shape, bytes_)
            file |= {spelling(other): tensor for other, tensor in beside.items()}
            twin[name] = ('F32', shape, quantized.f32(values)[1])
        return file | (more or {}), twin


class Encoders(TextTest):
    """Compares each text encoder file with a model folder that holds the same numbers in fp32."""

    def test_every_format_and_naming_scheme_makes_the_frames_of_its_unpacked_weights(self):
        marker = {'text_encoders.umt5xxl.transformer.scaled_fp8': ('F8_E4M3', [0], b''), 'spiece_model': ('U8', [SPIECE.stat().st_size], SPIECE.read_bytes())}
        for name, write, how in (('halves.safetensors', write_safetensors, {}), ('prefixed.safetensors', write_safetensors, {'spelling': comfy}),
                                 ('scaled.safetensors', write_safetensors, {'packing': fp8_scaled, 'spelling': comfy, 'more': marker}),
                                 ('comfy.safetensors', write_safetensors, {'packing': comfy_quant}), ('kijai.safetensors', write_safetensors, {'packing': all_fp8, 'spelling': authors_t5_name}),
                                 ('int8.safetensors', write_safetensors, {'packing': int8_rows, 'spelling': authors_t5_name}), ('mixed.gguf', quantized.write_gguf, {'packing': mixed, 'spelling': llama_t5_name}),
                                 ('enc-bf16.pth', quantized.write_pth, {'spelling': authors_t5_name})):
            with self.subTest(name):
                tensors, twin = self.packed(**how)
                file = write(self.folder / name, tensors)
                made = self.video('--text-encoder', file)
                write_safetensors(self.model / 'text_encoder' / 'model.safetensors', twin)
                self.assertEqual(made, self.video())
                self.assertEqual(made == self.usual, how.get('packing', halves) == halves)
                file.write_bytes(file.read_bytes()[:-100])
                self.refused('--text-encoder', file, words=[name, 'truncated'])
                write(file, self.packed(**how, rows=64)[0])
                self.refused('--text-encoder', file, words=[f'{name}: does not fit', 'vocab_size is 64, not 119'])
                missing = 'encoder.block.1.layer.1.DenseReluDense.wi_1.weight'
                write(file, self.packed(**how, drop=missing)[0])
                self.refused('--text-encoder', file, words=[name, f'1 missing: "{how.get("spelling", str)(missing)}" [48, 32]'])

    def test_refuses_files_that_are_not_text_encoders_of_the_model(self):
        other = next(DATA / place for place in ('pipeline', 'wan/pipeline') if (DATA / place) != Path(MODEL))
        self.refused('--text-encoder', other / 'text_encoder' / 'model.safetensors', words=['model.safetensors: does not fit', 'layers with a relative bias is'])
        self.refused('--text-encoder', Path(MODEL) / 'vae' / 'diffusion_pytorch_model.safetensors', words=['holds no ', 'EncoderModel'])
        self.refused('--text-encoder', Path(MODEL) / 'vae', words=['vae: holds no text_encoder'])
        self.fail_with(self.run_program('generate', '--random-weights', 'a.yaml', '--text-encoder', 'a.gguf'), 2, '--text-encoder', '--random-weights')

    def test_recipe_and_config_name_encoder_and_tokenizer(self):
        file = write_safetensors(self.folder / 'one.safetensors', self.packed(spelling=authors_t5_name)[0])
        shutil.copy(SPIECE, self.folder / 'pieces.model')
        (self.folder / 'my.yaml').write_text(f'text_encoder: {file}\ntokenizer: pieces.model\n')
        usual, same, named = (self.report('-m', self.model, '-o', f'{name}.mp4', *options)['recipe'] for name, options in (
            ('a', []), ('b', ['--tokenizer', self.model / 'tokenizer']), ('c', ['--config', 'my.yaml'])))
        self.assertEqual((named['text_encoder'], named['tokenizer']), ('one.safetensors', 'pieces.model'))
        self.assertEqual(usual['model_sha256'], same['model_sha256'])
        self.assertNotEqual(usual['model_sha256'], named['model_sha256'])
        again = ('generate', '-m', self.model, '--from', 'c.mp4', '--device', 'cpu', '--quiet', '-o', 'd.mp4')
        self.fail_with(self.run_program(*again), 2, 'one.safetensors', '--text-encoder')
        self.warn_with(self.run_program(*again, '--text-encoder', file, '--tokenizer', 'pieces.model'))
        self.assertEqual((self.folder / 'd.mp4').read_bytes(), (self.folder / 'c.mp4').read_bytes())
        (self.folder / 'pieces.model').write_bytes(SPIECE.read_bytes() + bytes([8 << 3, 0]))  # appends a protobuf field that no reader knows, which changes the file's hash
        other = self.succeed(self.run_program(*again, '--text-encoder', file, '--tokenizer', 'pieces.model')).stderr
        self.assertIn('the model is not the one that c.mp4 was made with', other)


def fields(message):
    """Yields (number, value) for each field of a protobuf message."""
    place = 0

    def varint():
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place, value, shift = place + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value
    while place < len(message):
        key = varint()
        size = {0: 0, 1: 8, 2: None, 5: 4}[key & 7]
        if size == 0:
            yield key >> 3, varint()
            continue
        size = varint() if size is None else size
        place += size
        yield key >> 3, message[place - size:place]


def gguf_keys(spiece):
    """Returns the GGUF key-value pairs that llama.cpp's converter writes for a spiece.model."""
    all_fields = list(fields(spiece))
    pieces = [dict(fields(value)) for number, value in all_fields if number == 1]
    normalizer = dict(fields(next(value for number, value in all_fields if number == 3)))
    keys = {'model': 't5', 'tokens': [piece[1].decode() for piece in pieces], 'scores': [struct.unpack('<f', piece[2])[0] if 2 in piece else 0.0 for piece in pieces],
            'token_type': [piece.get(3, 1) for piece in pieces], 'add_space_prefix': bool(normalizer.get(3, 1)),
            'remove_extra_whitespaces': bool(normalizer.get(4, 1)), 'precompiled_charsmap': normalizer.get(2, b'')}
    return {f'tokenizer.ggml.{name}': value for name, value in keys.items()}


def others(spiece):
    """Returns a SentencePiece model in which two words of the prompt have each other's ids."""
    return spiece.replace('▁red'.encode(), b'??????').replace('▁the'.encode(), '▁red'.encode()).replace(b'??????', '▁the'.encode())


class Tokenizers(TextTest):
    """Tests a model folder without a tokenizer. The tokenizer is in each of the other places where the program looks for it."""

    def setUp(self):
        super().setUp()
        self.bare = Path(shutil.copytree(self.model, self.folder / 'bare'))
        shutil.rmtree(self.bare / 'tokenizer')
        (self.folder / 'text').mkdir()
        self.encoder = write_safetensors(self.folder / 'text' / 'encoder.safetensors', self.packed()[0])

    def with_spiece(self, spiece):
        return write_safetensors(self.folder / 'text' / 'with.safetensors', self.packed(more={'spiece_model': ('U8', [len(spiece)], spiece)})[0])

    def with_keys(self, leave_out=''):
        keys = {name: value for name, value in gguf_keys(SPIECE.read_bytes()).items() if not name.endswith(leave_out or '?')}
        text = b''.join(quantized.gguf_key(*key) for key in keys.items())
        return quantized.write_gguf(self.folder / 'text' / 'with.gguf', self.packed(spelling=llama_t5_name)[0], text, len(keys), 't5encoder')

    def made_by(self, *arguments, model=None):
        return self.video(*arguments, model=model or self.bare)

    def test_named_tokenizer_is_used(self):
        (self.folder / 'pieces.model').write_bytes(SPIECE.read_bytes())
        for place in (SPIECE, SPIECE.parent, 'pieces.model'):
            self.assertEqual(self.made_by('--tokenizer', place), self.usual)
        (self.folder / 'other.model').write_bytes(others(SPIECE.read_bytes()))
        self.assertNotEqual(self.made_by('--tokenizer', 'other.model'), self.usual)
        self.assertNotEqual(self.made_by('--tokenizer', 'other.model', model=self.model), self.usual)

    def test_tokenizer_in_the_encoder_file_is_preferred_to_the_folder(self):
        other = self.with_spiece(others(SPIECE.read_bytes()))
        self.assertNotEqual(self.made_by('--text-encoder', other, model=self.model), self.usual)
        self.assertEqual(self.made_by('--text-encoder', other, '--tokenizer', SPIECE), self.usual)
        self.assertEqual(self.made_by('--text-encoder', self.with_spiece(SPIECE.read_bytes())), self.usual)
        self.assertEqual(self.made_by('--text-encoder', self.with_keys()), self.usual)

    def test_tokenizer_beside_the_encoder_file_is_preferred_to_the_folder(self):
        for place in ('.', 'tokenizer', WANTED):
            folder = self.folder / 'text' / place
            folder.mkdir(parents=True, exist_ok=True)
            (folder / 'spiece.model').write_bytes(SPIECE.read_bytes())
            self.assertEqual(self.made_by('--text-encoder', self.encoder), self.usual)
            (folder / 'spiece.model').write_bytes(others(SPIECE.read_bytes()))
            self.assertNotEqual(self.made_by('--text-encoder', self.encoder, model=self.model), self.usual)
            (folder / 'spiece.model').unlink()
        self.assertEqual(self.made_by('--text-encoder', self.encoder, model=self.model), self.usual)

    def test_error_names_the_needed_tokenizer(self):
        def asks(*arguments, words=()):
            self.refused(*arguments, words=['--tokenizer is needed', f"give {WANTED}'s spiece.model", *words], model=self.bare)
        asks(words=['bare/tokenizer'])
        asks('--text-encoder', self.encoder, words=['encoder.safetensors or beside it', 'bare/tokenizer'])
        asks('--text-encoder', self.with_keys(leave_out='charsmap'), words=['with.gguf or beside it'])

    def test_refuses_damaged_tokenizers_and_those_of_other_encoders(self):
        large = DATA / 'tokenizer' / 'spiece.model'
        (self.folder / 'small.model').write_bytes(b''.join(b'\n' + bytes([len(piece)]) + piece for piece in (b'\n\x05<pad>\x18\x03', b'\n\x04</s>\x18\x03', b'\n\x05<unk>\x18\x02', b'\n\x01a')))
        (self.folder / 'empty').mkdir()
        for place, words in ((large, ['189 pieces', "the text encoder's vocab_size is 119"]), (large.parent, ['189 pieces']), ('small.model', ['small.model', '4 pieces', '119']),
                             ('empty', ['empty', 'holds neither a spiece.model nor a tokenizer.json']), ('none.model', ['none.model', 'no such file']), (self.encoder, ['encoder.safetensors is not a whole SentencePiece model'])):
            self.refused('--tokenizer', place, words=[*words])
        self.refused('--text-encoder', self.with_spiece(large.read_bytes()), words=['with.safetensors', '189 pieces', WANTED])
        self.refused('--text-encoder', self.with_spiece(SPIECE.read_bytes()[:-1]), words=['with.safetensors: spiece_model is not a whole SentencePiece model'])


if __name__ == '__main__':
    unittest.main()
