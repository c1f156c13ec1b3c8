// Packs keys into transposed panels of 64 and values into padded rows; for the int8 emulation also centres and rounds
// them.
#include "attention/cpu/packed_heads.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "attention/cpu/quantize.h"

namespace sparsereel::attention::cpu {
namespace {

constexpr int64_t kRowsAtOnce = 16;  // source rows that stay in the first-level cache whatever their stride

/// panel[d][i] = rows[i][d]; zeros for i >= tokens.
void transpose(const float* rows, int64_t stride, int64_t tokens, int64_t head_dim, float* panel) {
  for (int64_t first = 0; first < kBlock; first += kRowsAtOnce) {
    const int64_t count = std::clamp<int64_t>(tokens - first, 0, kRowsAtOnce);
    for (int64_t d = 0; d < head_dim; ++d) {
      float* to = panel + d * kBlock + first;
      for (int64_t i = 0; i < count; ++i) to[i] = rows[(first + i) * stride + d];
      for (int64_t i = count; i < kRowsAtOnce; ++i) to[i] = 0;
    }
  }
}

void copy_rows(const float* rows, int64_t stride, int64_t tokens, int64_t head_dim, int64_t padded, float* to) {
  for (int64_t i = 0; i < kBlock; ++i, to += padded) {
    const int64_t count = i < tokens ? head_dim : 0;
    if (count > 0) std::memcpy(to, rows + i * stride, static_cast<size_t>(count) * sizeof(float));
    std::fill(to + count, to + padded, 0.0F);
  }
}

}  // namespace

int64_t PackedHeads::floats(const Problem& problem, Arithmetic arithmetic) {
  const int64_t stride = padded_dim(problem.head_dim), tokens = problem.key_blocks() * kBlock;
  const int64_t side = arithmetic == Arithmetic::int8 ? tokens + 4 * stride : 0;
  return problem.batch * problem.heads * (tokens * 2 * stride + side);
}

PackedHeads::PackedHeads(const Problem& problem, Arithmetic arithmetic, float* memory)
    : problem_(problem), arithmetic_(arithmetic), stride_(padded_dim(problem.head_dim)), memory_(memory) {}

float* PackedHeads::keys(int64_t head, int64_t block) const {
  return memory_ + head * floats(problem_, arithmetic_) / (problem_.batch * problem_.heads) +
         block * kBlock * problem_.head_dim;
}

float* PackedHeads::values(int64_t head, int64_t block) const {
  return keys(head, 0) + problem_.key_blocks() * kBlock * stride_ + block * kBlock * stride_;
}

float* PackedHeads::side(int64_t head) const {
  return values(head, problem_.key_blocks());
}

void PackedHeads::pack(const ParallelFor& parallel) {
  const int64_t heads = problem_.batch * problem_.heads, blocks = problem_.key_blocks();
  parallel(heads * blocks, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) pack_block(i / blocks, i % blocks);
  });
  if (arithmetic_ != Arithmetic::int8) return;
  parallel(heads, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) round_head(head);
  });
}

void PackedHeads::attach(int64_t b, int64_t h, Tile& tile) const {
  const int64_t head = b * problem_.heads + h;
  tile.keys = keys(head, 0);
  tile.values = values(head, 0);
  if (arithmetic_ != Arithmetic::int8) return;
  const float* vectors = side(head) + problem_.key_blocks() * kBlock;
  tile.int8 = {.key_scale = side(head),
               .key_mean = vectors,
               .value_scale = vectors + stride_,
               .value_mean = vectors + 2 * stride_};
}

void PackedHeads::pack_block(int64_t head, int64_t block) const {
  const int64_t b = head / problem_.heads, h = head % problem_.heads, first = block * kBlock;
  const int64_t tokens = std::clamp<int64_t>(problem_.key_length(b) - first, 0, kBlock);
  transpose(problem_.k.row(b, first, h), problem_.k.token_stride, tokens, problem_.head_dim, keys(head, block));
  copy_rows(problem_.v.row(b, first, h), problem_.v.token_stride, tokens, problem_.head_dim, stride_,
            values(head, block));
}

/// Centres and rounds one packed head in place. Rounding happens in double, as in the reference.
void PackedHeads::round_head(int64_t head) const {
  const int64_t tokens = problem_.key_length(head / problem_.heads), head_dim = problem_.head_dim;
  float* key_scale = side(head);
  float* key_mean = key_scale + problem_.key_blocks() * kBlock;
  float* value_scale = key_mean + stride_;
  float* value_mean = value_scale + stride_;
  const auto key = [&](int64_t t, int64_t d) -> float& { return keys(head, t / kBlock)[d * kBlock + t % kBlock]; };
  const auto value = [&](int64_t t, int64_t d) -> float& { return values(head, 0)[t * stride_ + d]; };
  for (int64_t d = 0; d < head_dim; ++d) {
    double key_sum = 0, value_sum = 0, largest = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      key_sum += key(t, d);
      value_sum += value(t, d);
    }
    key_mean[d] = static_cast<float>(tokens > 0 ? key_sum / static_cast<double>(tokens) : 0);
    value_mean[d] = static_cast<float>(tokens > 0 ? value_sum / static_cast<double>(tokens) : 0);
    for (int64_t t = 0; t < tokens; ++t) {
      key(t, d) -= key_mean[d];
      value(t, d) -= value_mean[d];
      largest = std::max<double>(largest, std::abs(value(t, d)));
    }
    value_scale[d] = static_cast<float>(largest > 0 ? largest / kE4m3Max : 1);
    for (int64_t t = 0; t < tokens; ++t)
      value(t, d) = static_cast<float>(round_e4m3(static_cast<double>(value(t, d)) / value_scale[d]));
  }
  for (int64_t block = 0; block < problem_.key_blocks(); ++block) {
    float* panel = keys(head, block);
    double largest[kKeyGroups] = {};
    for (int64_t d = 0; d < head_dim; ++d)
      for (int64_t i = 0; i < kBlock; ++i)
        largest[key_group(i)] = std::max<double>(largest[key_group(i)], std::abs(panel[d * kBlock + i]));
    for (int64_t i = 0; i < kBlock; ++i) {
      const double scale = int8_scale(largest[key_group(i)]);
      key_scale[block * kBlock + i] = static_cast<float>(scale);
      for (int64_t d = 0; d < head_dim; ++d)
        panel[d * kBlock + i] = static_cast<float>(round_int8(panel[d * kBlock + i] / scale));
    }
  }
}

}  // namespace sparsereel::attention::cpu
