"""Tests the Python package with a build's library on a CPU. Tests that need torch for Python are skipped if it is missing.

By hand: SPARSEREEL_ATTENTION_LIBRARY=build/libsparsereel_attention.so python3 tests/attention_library/python_test.py
"""
import ctypes
import importlib
import importlib.util
import math
import os
import re
import signal
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / 'attention' / 'python'
HEADER = re.sub(r'/\*.*?\*/', '', (ROOT / 'attention/include/sparsereel/attention.h').read_text(), flags=re.DOTALL)
os.environ.setdefault('SPARSEREEL_ATTENTION_LIBRARY', str(ROOT / 'build' / 'libsparsereel_attention.so'))
sys.path.insert(0, str(PACKAGE))
try:
    import torch
except (ImportError, OSError):
    torch = None
else:
    import sparsereel
    import torch.nn.functional as F


def load_library_module():
    """Tests _library.py alone, which needs no torch."""
    spec = importlib.util.spec_from_file_location('library', PACKAGE / 'sparsereel' / '_library.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fields(struct):
    """Returns the names of a struct's fields in the header, in order."""
    body = re.search(rf'typedef struct {struct} \{{(.*?)\}} {struct};', HEADER, re.DOTALL)[1]
    return [name for declaration in body.split(';') for name in re.findall(r'(\w+)\s*(?:,|$)', declaration.strip())]


class Structs(unittest.TestCase):
    def setUp(self):
        self.library = load_library_module()

    def test_have_the_fields_of_the_header_in_its_order(self):
        for struct, mirror in (('sparsereel_tensor', 'Tensor'), ('sparsereel_head_policy', 'HeadPolicy'), ('sparsereel_attention_policy', 'Policy'),
                               ('sparsereel_attention_prologue', 'Prologue'), ('sparsereel_attention_call', 'Call')):
            self.assertEqual([name for name, _ in getattr(self.library, mirror)._fields_], fields(struct), struct)

    def test_have_the_size_and_the_defaults_of_the_library(self):
        call = self.library.new_call()
        self.assertEqual((call.policy.all.topk, call.policy.all.pv_threshold, call.policy.cell, call.policy.selection_rows), (0.12, 50, 16, 192))
        self.assertEqual((call.policy.dense_operations, call.map_rows, call.prologue.eps, call.prologue.interleaved), (6e10, 64, 1e-6, 1))
        self.assertEqual(call.kv_heads, 0)

    def test_constants_match_the_header(self):
        def constant(name):
            return int(re.search(rf'\bSPARSEREEL_{name} = (\d+)', HEADER)[1])
        lib = self.library
        for names, values in ((lib.SELECTIONS, ('TOPK', 'CDF', 'ERROR', 'DENSE', 'BLOCK_ERROR')), (lib.DROPPED, ('MEANS', 'NOTHING')), (lib.RANKINGS, ('BY_ERROR', 'BY_MASS')),
                              (lib.ORDERS, ('HILBERT', 'NATIVE', 'TIME_MAJOR', 'MORTON'))):
            self.assertEqual([*names.values()], [constant(name) for name in values])
        for name in ('OK', 'BAD_ARGUMENT', 'UNSUPPORTED', 'TOO_SHORT', 'FP32', 'FP16', 'BF16', 'COUNT_KEPT', 'COUNT_SKIPPED_PV', 'COUNTS'):
            self.assertEqual(getattr(lib, name), constant(name), name)

    def test_missing_library_is_an_error_with_a_remedy(self):
        result = subprocess.run([sys.executable, PACKAGE / 'sparsereel' / '_library.py'], env={'SPARSEREEL_ATTENTION_LIBRARY': '/nowhere.so'}, capture_output=True,
                                text=True, check=False)
        self.assertRegex(result.stderr, r'ImportError: no libsparsereel_attention\.so: /nowhere\.so.*Install it with "cmake --install build --component attention')


def masked(q, k, v, mask, scale=None):
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)


def of_blocks(block_map, rows, queries, keys):
    return block_map.bool().repeat_interleave(rows, 2)[:, :, :queries].repeat_interleave(64, 3)[..., :keys]


@unittest.skipUnless(torch, 'no torch for Python')
class Operator(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def tensors(self, tokens=500, heads=3, head_dim=64, dtype=None):
        return [torch.randn(2, heads, tokens, head_dim, dtype=dtype) for _ in range(3)]

    def assert_near(self, a, b, error=1e-5):
        self.assertEqual(a.shape, b.shape)
        self.assertLess((a.float() - b.float()).abs().max().item(), error)

    def test_equals_full_attention_if_every_block_is_kept(self):
        for dtype, error in ((torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
            q, k, v = self.tensors(dtype=dtype)
            out = sparsereel.attention(q, k, v, topk=1)
            self.assertEqual(out.dtype, dtype)
            self.assert_near(out, masked(q.float(), k.float(), v.float(), None), error)

    def test_accepts_both_layouts_and_strided_views(self):
        packed = torch.randn(2, 500, 3, 4, 64)
        q, k, v = packed.unbind(2)  # [batch, tokens, heads, head_dim] views
        out = sparsereel.attention(q, k, v, topk=0.3, tensor_layout='NHD')
        other = sparsereel.attention(*(x.transpose(1, 2) for x in (q, k, v)), topk=0.3)
        self.assertTrue(torch.equal(out.transpose(1, 2), other))
        self.assertTrue(out.is_contiguous() and other.is_contiguous())

    def test_obeys_masks_scale_and_maps(self):
        q, k, v = self.tensors()
        self.assert_near(sparsereel.attention(q, k, v, topk=1, is_causal=True, scale=0.3), F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3))
        lengths = torch.tensor([100, 500])
        real = torch.arange(500) < lengths.view(2, 1, 1, 1)
        self.assert_near(sparsereel.attention(q, k, v, topk=1, key_lengths=lengths), masked(q, k, v, real))
        for rows in (64, 128):
            block_map = torch.rand(2, 3, -(-500 // rows), 8) < 0.5
            block_map[..., 0] = True
            out, sparsity = sparsereel.attention(q, k, v, block_map=block_map, dropped='none', return_sparsity=True)
            pairs = of_blocks(block_map, rows, 500, 500)
            self.assert_near(out, masked(q, k, v, pairs))
            blocks = pairs[:, :, ::64, ::64].float()
            self.assertAlmostEqual(sparsity, 1 - blocks.mean().item(), places=6)

    def test_computes_full_attention_for_calls_that_are_short_on_a_gpu(self):
        q, (k, v) = torch.randn(2, 6, 50, 64), torch.randn(2, 2, 2, 60, 64)
        lengths = torch.tensor([60, 31])
        for causal in (False, True):
            pairs = torch.ones(50, 60, dtype=torch.bool).tril(10 if causal else 60) & (torch.arange(60) < lengths.view(2, 1, 1, 1))
            lse = torch.empty(2, 6, 50)
            out = sparsereel._attention._full(q, k, v, 'HND', 0.3, causal, lengths, lse)
            repeated = [x.repeat_interleave(3, 1) for x in (k, v)]
            self.assert_near(out, F.scaled_dot_product_attention(q, *repeated, pairs, scale=0.3))
            self.assert_near(lse, (0.3 * q @ repeated[0].transpose(2, 3)).masked_fill(~pairs, -torch.inf).logsumexp(-1))

    def test_replaces_dropped_blocks_by_means(self):
        q, k, v = self.tensors(2000)
        v = v + 1
        full = masked(q, k, v, None)
        def error(out):
            return ((out - full).abs().sum() / full.abs().sum()).item()
        with_means, sparsity = sparsereel.attention(q, k, v, topk=0.2, return_sparsity=True)
        without = sparsereel.attention(q, k, v, topk=0.2, dropped='none')
        self.assertLess(error(with_means), 0.9 * error(without))
        self.assertGreater(sparsity, 0.7)

    def test_accepts_a_different_topk_for_each_head(self):
        q, k, v = self.tensors()
        out = sparsereel.attention(q, k, v, topk=[1, 0.2, 0.5])
        self.assert_near(out[:, :1], masked(q, k, v, None)[:, :1])
        self.assertTrue(torch.equal(out, sparsereel.attention(q, k, v, topk=torch.tensor([1, 0.2, 0.5], dtype=torch.float64))))
        self.assertFalse(torch.equal(out, sparsereel.attention(q, k, v, topk=0.5)))

    def test_accepts_fewer_heads_of_keys_and_values(self):
        q, k, v = self.tensors(700, heads=6)
        k, v = k[:, :2], v[:, :2]
        all_k, all_v = (x.repeat_interleave(3, 1) for x in (k, v))
        for arguments in ({'topk': 1}, {'topk': 0.3}, {'topk': 0.3, 'dropped': 'none'}, {'cdf': 0.7, 'is_causal': True}, {'topk': [0.1, 0.2, 0.3, 0.4, 0.5, 1]},
                          {'error': 0.1, 'text_tokens': 70}, {'block_error': 0.6}, {'key_lengths': torch.tensor([500, 700])}):
            out, lse = sparsereel.attention(q, k, v, return_lse=True, **arguments)
            expected, expected_lse = sparsereel.attention(q, all_k, all_v, return_lse=True, **arguments)
            self.assertTrue(torch.equal(out, expected) and torch.equal(lse, expected_lse), arguments)
        turned = sparsereel.attention(*(x.transpose(1, 2) for x in (q, k, v)), topk=1, tensor_layout='NHD')
        self.assert_near(turned.transpose(1, 2), masked(q, all_k, all_v, None))
        eight_bits = sparsereel.attention(q, k, v, quantized=True)
        self.assertLess(((eight_bits - masked(q, all_k, all_v, None)).abs().sum() / eight_bits.abs().sum()).item(), 0.06)

    def test_drops_more_blocks_with_a_larger_block_error_bound(self):
        q, k, v = self.tensors(700)
        shares = [sparsereel.attention(q, k, v, block_error=bound, return_sparsity=True)[1] for bound in (1e-6, 0.6, 1000)]
        self.assertEqual(shares[0], 0)
        self.assertTrue(0 < shares[1] < shares[2], shares)

    def test_ignores_the_arithmetic_of_a_gpu_on_a_cpu(self):
        q, k, v = self.tensors(700)
        self.assertTrue(torch.equal(sparsereel.attention(q, k, v, topk=0.3, arithmetic=16), sparsereel.attention(q, k, v, topk=0.3)))

    def test_returns_the_log_sum_exp(self):
        q, k, v = self.tensors()
        _, lse = sparsereel.attention(q, k, v, topk=1, return_lse=True)
        self.assert_near(lse, (q @ k.transpose(2, 3) / 8).logsumexp(-1))

    def test_compiles_without_a_graph_break(self):
        q, k, v = self.tensors()
        def layer(q, k, v):
            return sparsereel.attention(q * 2, k, v, topk=0.3, text_tokens=20, dropped='none') + 1
        compiled = torch.compile(layer, backend='aot_eager', fullgraph=True)
        with torch.no_grad():
            self.assertTrue(torch.equal(compiled(q, k, v), layer(q, k, v)))

    def test_matches_its_fake_operator(self):
        q, k, v = self.tensors(130)
        policy = [0.0, 0.3, 0.9, 0.1, -0.1, 50.0]
        for layout in ('HND', 'NHD'):
            torch.library.opcheck(torch.ops.sparsereel.attention.default, (q, k, v, layout, 0.0, False, 0, False, policy, 0, 0, 0.0, None, None, True),
                                  test_utils=('test_schema', 'test_faketensor'))

    def test_refuses_gradients(self):
        q, k, v = self.tensors(100)
        q.requires_grad_()
        with self.assertRaisesRegex(RuntimeError, 'no gradients: call it under torch.no_grad'):
            sparsereel.attention(q, k, v)
        with torch.no_grad():
            sparsereel.attention(q, k, v)

    def test_refuses_derivatives_in_the_forward_direction(self):
        q, k, v = self.tensors(100)
        tangent = torch.ones_like(q)
        for derivative in (lambda: torch.func.jvp(lambda x: sparsereel.attention(x, k, v), (q,), (tangent,)),
                           lambda: torch.func.jvp(lambda x: sparsereel.attention(q, k, x), (v,), (tangent,)),
                           lambda: torch.func.jacfwd(lambda x: sparsereel.attention(q * x, k, v))(torch.tensor(2.0))):
            with self.assertRaisesRegex(RuntimeError, 'no gradients: call it under torch.no_grad'):
                derivative()

    def test_serves_a_forked_child(self):
        q, k, v = self.tensors()
        def content():  # uses one thread of torch, because a forked child cannot use the parent's
            out = sparsereel.attention(q, k, v)
            return ctypes.string_at(out.data_ptr(), out.nbytes)
        expected = content()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            same = content() == expected
            torch.set_num_threads(1)  # as in every worker of a DataLoader
            os._exit(0 if same and content() == expected else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_accepts_numbers_of_every_kind(self):
        q, k, v = self.tensors()
        expected = sparsereel.attention(q, k, v, topk=0.5)
        numbers = [torch.tensor(0.5), torch.full((3,), 0.5), (0.5, 0.5, 0.5), [torch.tensor(0.5)] * 3]
        if importlib.util.find_spec('numpy'):
            numpy = importlib.import_module('numpy')
            numbers += [numpy.float32(0.5), numpy.float64(0.5), numpy.full(3, 0.5, numpy.float16), [numpy.float32(0.5)] * 3]
        for number in numbers:
            self.assertTrue(torch.equal(sparsereel.attention(q, k, v, topk=number), expected), number)
        for number in ('0.5', '123', [[0.5] * 3], {0.5: 1}, torch.full((3, 1), 0.5), 0.5j):
            with self.assertRaisesRegex(ValueError, 'topk is .*: pass a number, or one for each head'):
                sparsereel.attention(q, k, v, topk=number)

    def test_accepts_block_maps_of_any_dtype(self):
        q, k, v = self.tensors(200)
        chosen = torch.rand(2, 3, 4, 4) < 0.5
        expected = sparsereel.attention(q, k, v, block_map=chosen, dropped='none')
        for block_map in (chosen * 256, chosen * 0.25, chosen * -1):
            self.assertTrue(torch.equal(sparsereel.attention(q, k, v, block_map=block_map, dropped='none'), expected), block_map.dtype)

    def test_requires_one_integer_key_length_for_each_batch_entry(self):
        q, k, v = self.tensors(200)
        expected = sparsereel.attention(q, k, v, key_lengths=torch.tensor([100, 150]), topk=1)
        for dtype in (torch.int32, torch.int16, torch.uint8):
            self.assertTrue(torch.equal(sparsereel.attention(q, k, v, key_lengths=torch.tensor([100, 150], dtype=dtype), topk=1), expected))
        for lengths in (torch.ones(2, 200, dtype=torch.bool), torch.tensor([True, True]), torch.tensor([100.0, 150.0]), torch.empty(0, dtype=torch.int64),
                        torch.tensor([100]), torch.tensor(100), torch.tensor([[100], [150]]), torch.tensor([100, 150, 3])):
            with self.assertRaisesRegex(ValueError, r'key_lengths is torch\.\w+ \[.*pass integers \[2\]'):
                sparsereel.attention(q, k, v, key_lengths=lengths)

    def test_refuses_tensors_without_memory(self):
        q, k, v = self.tensors(100)
        lengths, block_map = torch.tensor([100, 50]), torch.ones(2, 3, 2, 2)
        for arguments, words in (({'key_lengths': lengths.to('meta')}, 'on meta: pass integers'), ({'block_map': block_map.to('meta')}, r'block_map is .* on meta: pass')):
            with self.assertRaisesRegex(ValueError, words):
                sparsereel.attention(q, k, v, **arguments)

    def test_names_impossible_arguments(self):
        q, k, v = self.tensors(100)
        for arguments, words in (({'topk': 0.1, 'cdf': 0.9}, 'topk and cdf: pass one'), ({'tensor_layout': 'BHD'}, "tensor_layout is 'BHD'"),
                                 ({'dropped': 'zero'}, "dropped is 'zero': pass one of mean, none"), ({'topk': [0.1, 0.2]}, 'topk has 2 values, q has 3 heads'),
                                 ({'block_error': [0.1, 0.2]}, 'block_error has 2 values, q has 3 heads'), ({'error': 1, 'block_error': 1}, 'error and block_error: pass one'),
                                 ({'arithmetic': 4}, 'arithmetic is 4: pass 8 or 16'), ({'block_map': torch.ones(2, 3, 2, 3)}, r'block_map is \[2, 3, 2, 3\]'),
                                 ({'block_map': torch.ones(3, 2, 2)}, r'block_map is \[3, 2, 2\]'), ({'block_map': torch.ones(2, 3, 2, 2, 1)}, r'block_map is \[2, 3, 2, 2, 1\]'),
                                 ({'key_lengths': torch.tensor([1, 1]), 'return_sparsity': True}, 'leave one out')):
            with self.assertRaisesRegex(ValueError, words):
                sparsereel.attention(q, k, v, **arguments)
        for call in (sparsereel.attention, sparsereel.spas_sage2_attn_meansim_topk_cuda):
            with self.assertRaisesRegex(ValueError, 'as many heads as q, or a divisor'):
                call(q, k[:, :2], v[:, :2])
        with self.assertRaisesRegex(ValueError, 'float64'):
            sparsereel.attention(q.double(), k.double(), v.double())
        with self.assertRaisesRegex(sparsereel.AttentionError, 'computes every block in 8 bits, but arithmetic is 16'):
            sparsereel.attention(q, k, v, quantized=True, arithmetic=16)
        with self.assertRaisesRegex(sparsereel.AttentionError, 'topk is 2; ') as caught:
            sparsereel.attention(q, k, v, topk=2)
        self.assertEqual(caught.exception.status, 1)

    def test_token_order_visits_neighbors(self):
        order, inverse = sparsereel.token_order(4, 6, 8), sparsereel.token_order(4, 6, 8, inverse=True)
        self.assertTrue(torch.equal(order[inverse], torch.arange(192)))
        cells = torch.stack((order // 48, order // 8 % 6, order % 8))
        self.assertEqual(cells.diff(dim=1).abs().sum(0).max().item(), 1)
        with self.assertRaisesRegex(sparsereel.AttentionError, 'empty side'):
            sparsereel.token_order(0, 6, 7)
        with self.assertRaisesRegex(ValueError, 'order is'):
            sparsereel.token_order(5, 6, 7, order='spiral')


def published_map(q, k, select, causal):
    """Returns the block map of one head. Each tile keeps its best select(shares) blocks, where shares are the blocks' shares of its mass, largest first."""
    keys = -(-len(k) // 64)
    k = k - k.mean(0)
    means = torch.stack([k[64 * j:64 * j + 64].mean(0) for j in range(keys)])
    rows = []
    for i in range(-(-len(q) // 128)):
        tile = q[128 * i:128 * i + 128]
        visible = [j for j in range(keys) if not causal or 64 * j <= min(128 * i + 128, len(q)) - 1]
        weights = [math.exp((tile.mean(0) @ means[j]).item() / math.sqrt(q.size(1))) if j in visible else 0 for j in range(keys)]
        best = sorted(range(keys), key=lambda j: -weights[j])
        kept = best[:max(1, select([weights[j] / sum(weights) for j in best]))]
        rows.append([j in kept and j in visible for j in range(keys)])
    return torch.tensor(rows)


@unittest.skipUnless(torch, 'no torch for Python')
class Published(unittest.TestCase):
    """Tests the entry points of SpargeAttn."""

    def setUp(self):
        torch.manual_seed(2)
        # Values that fp16 represents exactly. The mean differs between runs of 60 tokens, so that blocks differ.
        self.q, self.k, self.v = (torch.randn(1, 2, 600, 64) + torch.randn(1, 2, 10, 64).repeat_interleave(60, 2) for _ in range(3))
        self.q, self.k, self.v = (x.half().float() for x in (self.q, self.k, self.v))

    def expected(self, select, causal=False):
        block_map = torch.stack([published_map(self.q[0, h], self.k[0, h], select, causal) for h in range(2)]).unsqueeze(0)
        pairs = of_blocks(block_map, 128, 600, 600)
        if causal:
            pairs = pairs & torch.ones(600, 600, dtype=torch.bool).tril()
        return masked(self.q, self.k, self.v, pairs), block_map

    def assert_near(self, out, expected):
        self.assertEqual(out.dtype, torch.float16)
        self.assertLess((out.float() - expected).abs().max().item(), 5e-3)

    def test_topk_keeps_a_share_of_all_key_blocks_of_each_tile(self):
        out, sparsity = sparsereel.spas_sage2_attn_meansim_topk_cuda(self.q, self.k, self.v, topk=0.35, return_sparsity=True)
        expected, block_map = self.expected(lambda shares: int(0.35 * len(shares)))
        self.assert_near(out, expected)
        self.assertAlmostEqual(sparsity, 1 - block_map.float().mean().item(), places=6)
        self.assertEqual(block_map.sum().item(), 2 * 5 * 3)

    def test_causal_topk_counts_hidden_key_blocks(self):
        out = sparsereel.spas_sage2_attn_meansim_topk_cuda(self.q, self.k, self.v, topk=0.35, is_causal=True)
        expected, block_map = self.expected(lambda shares: int(0.35 * len(shares)), causal=True)
        self.assert_near(out, expected)
        self.assertEqual(block_map[0, 0].sum(-1).tolist(), [2, 3, 3, 3, 3])  # this program's topk would keep only one of the first tile's two blocks

    def test_cdf_leaves_out_the_block_that_crosses_the_threshold(self):
        def below(shares):
            return sum(sum(shares[:i + 1]) <= 0.8 for i in range(len(shares)))
        out = sparsereel.spas_sage2_attn_meansim_cuda(self.q, self.k, self.v, simthreshd1=-0.1, cdfthreshd=0.8)
        expected, block_map = self.expected(below)
        self.assert_near(out, expected)
        self.assertLess(block_map.float().mean().item(), 0.9)

    def test_blocks_that_are_not_alike_are_computed(self):
        out, sparsity = sparsereel.spas_sage2_attn_meansim_cuda(self.q, self.k, self.v, simthreshd1=0.99, cdfthreshd=0.1, return_sparsity=True)
        self.assertEqual(sparsity, 0)
        self.assert_near(out, masked(self.q, self.k, self.v, None))
        one_head = sparsereel.spas_sage2_attn_meansim_topk_cuda(self.q, self.k, self.v, simthreshd1=torch.tensor([0.99, -0.1]), topk=0.1)
        self.assert_near(one_head[:, :1], masked(self.q, self.k, self.v, None)[:, :1])
        self.assertGreater((one_head[:, 1:].float() - masked(self.q, self.k, self.v, None)[:, 1:]).abs().max().item(), 0.1)

    def test_block_sparse_obeys_its_map(self):
        mask_id = torch.rand(1, 2, 5, 10) < 0.4
        mask_id[..., 3] = True
        out, sparsity = sparsereel.block_sparse_sage2_attn_cuda(self.q, self.k, self.v, mask_id=mask_id, return_sparsity=True)
        self.assert_near(out, masked(self.q, self.k, self.v, of_blocks(mask_id, 128, 600, 600)))
        self.assertAlmostEqual(sparsity, 1 - mask_id.float().mean().item(), places=6)

    def test_accepts_layouts_sinks_bf16_and_fewer_heads_of_keys(self):
        usual = sparsereel.spas_sage2_attn_meansim_topk_cuda(self.q, self.k, self.v)
        turned = sparsereel.spas_sage2_attn_meansim_topk_cuda(*(x.transpose(1, 2) for x in (self.q, self.k, self.v)), tensor_layout='NHD')
        self.assertTrue(torch.equal(turned.transpose(1, 2), usual))
        with_sink, sparsity = sparsereel.spas_sage2_attn_meansim_topk_cuda(self.q, self.k, self.v, topk=0.1, attention_sink=True, return_sparsity=True)
        self.assertLess(sparsity, 0.9)
        self.assertFalse(torch.equal(with_sink, sparsereel.spas_sage2_attn_meansim_topk_cuda(self.q, self.k, self.v, topk=0.1)))
        self.assertEqual(sparsereel.spas_sage2_attn_meansim_topk_cuda(*(x.bfloat16() for x in (self.q, self.k, self.v))).dtype, torch.bfloat16)
        one, repeated = self.k[:, :1], self.k[:, :1].expand(-1, 2, -1, -1)
        few = sparsereel.spas_sage2_attn_meansim_topk_cuda(self.q, one, self.v[:, :1])
        mask_id = torch.rand(1, 2, 5, 10) < 0.6
        self.assert_near(sparsereel.block_sparse_sage2_attn_cuda(self.q, one, self.v[:, :1], mask_id=mask_id | (torch.arange(10) == 3)),
                         masked(self.q, repeated, self.v[:, :1], of_blocks(mask_id | (torch.arange(10) == 3), 128, 600, 600)))
        self.assertTrue(torch.equal(few, sparsereel.spas_sage2_attn_meansim_topk_cuda(self.q, repeated, self.v[:, :1].expand(-1, 2, -1, -1))))

    def test_names_unsupported_arguments(self):
        mask = torch.ones(600, 600)
        for name, call in (('attn_mask', lambda: sparsereel.spas_sage2_attn_meansim_topk_cuda(self.q, self.k, self.v, mask)),
                           ('dropout_p', lambda: sparsereel.spas_sage2_attn_meansim_cuda(self.q, self.k, self.v, dropout_p=0.1)),
                           ('attention_sink', lambda: sparsereel.block_sparse_sage2_attn_cuda(self.q, self.k, self.v, torch.ones(1, 2, 5, 10), attention_sink=True)),
                           ('output_dtype', lambda: sparsereel.spas_sage2_attn_meansim_topk_cuda(self.q, self.k, self.v, output_dtype=torch.float64))):
            with self.assertRaisesRegex(NotImplementedError, name):
                call()
        with self.assertRaisesRegex(ValueError, 'one of cdfthreshd and topk'):
            sparsereel.spas_sage2_attn_meansim_topk_cuda(self.q, self.k, self.v, cdfthreshd=0.9)


if __name__ == '__main__':
    unittest.main()
