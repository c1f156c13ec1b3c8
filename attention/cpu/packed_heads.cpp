// Copies keys into transposed panels of 64 and values into padded rows. For the int8 emulation it also subtracts the
// means, balances the channels and rounds.
#include "attention/cpu/packed_heads.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "attention/cpu/balance.h"
#include "attention/cpu/quantize.h"

namespace sparsereel::attention::cpu {
namespace {

constexpr int64_t kRowsAtOnce = 16;  // rows copied together: few enough to stay in the L1 cache, whatever their stride

/// Writes panel[d][i] = rows[i][d], and zeros for i >= tokens.
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

/// Returns the number of cells of a head whose batch entry has no padding: the cells of all blocks of 64 video keys.
int64_t mean_cells(const KernelParams& params) {
  if (params.mean_cell == 0) return 0;
  return video_part(params.keys, params.text_tokens) / kBlock * (kBlock / params.mean_cell);
}

/// Returns the sum of x[i] * scale[i] (x[i] if scale is null) for n values. n is a multiple of 4, and four partial sums
/// let the compiler vectorize.
float sum(const float* x, const float* scale, int64_t n) {
  float lanes[4] = {};
  for (int64_t i = 0; i < n; i += 4)
    for (int64_t j = 0; j < 4; ++j) lanes[j] += scale == nullptr ? x[i + j] : x[i + j] * scale[i + j];
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

}  // namespace

int64_t PackedHeads::floats(const KernelParams& params, Arithmetic arithmetic) {
  const int64_t stride = padded_dim(params.head_dim), tokens = params.key_blocks() * kBlock;
  const int64_t scales = arithmetic == Arithmetic::exact ? 0 : blocks_of(mean_cells(params)) * kBlock;
  return params.batch * params.heads_of_keys() *
         (tokens * 2 * stride + side_floats(params, arithmetic) + mean_cells(params) * 2 * stride + scales);
}

int64_t PackedHeads::side_floats(const KernelParams& params, Arithmetic arithmetic) {
  const int64_t stride = padded_dim(params.head_dim), blocks = params.key_blocks();
  if (arithmetic == Arithmetic::exact) return 0;
  return blocks * kBlock + 4 * stride + (arithmetic == Arithmetic::int8_values ? blocks * stride : 0);
}

PackedHeads::PackedHeads(const KernelParams& params, Arithmetic arithmetic, float* memory)
    : params_(params), arithmetic_(arithmetic), stride_(padded_dim(params.head_dim)), memory_(memory) {}

float* PackedHeads::keys(int64_t head, int64_t block) const {
  return memory_ + head * (floats(params_, arithmetic_) / heads()) + block * kBlock * params_.head_dim;
}

float* PackedHeads::values(int64_t head, int64_t block) const {
  return keys(head, 0) + params_.key_blocks() * kBlock * stride_ + block * kBlock * stride_;
}

float* PackedHeads::side(int64_t head) const {
  return values(head, params_.key_blocks());
}

float* PackedHeads::block_scale(int64_t head, int64_t block) const {
  return side(head) + params_.key_blocks() * kBlock + (4 + block) * stride_;
}

float* PackedHeads::mean_keys(int64_t head) const {
  return side(head) + side_floats(params_, arithmetic_);
}

float* PackedHeads::mean_values(int64_t head) const {
  return mean_keys(head) + mean_cells(params_) * stride_;
}

float* PackedHeads::mean_scale(int64_t head) const {
  return mean_values(head) + mean_cells(params_) * stride_;
}

PackedMeans PackedHeads::means(int64_t b, int64_t h) const {
  const int64_t head = head_of(b, h);
  return {.cells = cells_of_block(),
          .keys = mean_keys(head),
          .values = mean_values(head),
          .key_scale = arithmetic_ == Arithmetic::exact ? nullptr : mean_scale(head)};
}

void PackedHeads::pack(const ParallelFor& parallel) {
  const int64_t blocks = params_.key_blocks();
  parallel(heads() * blocks, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) pack_block(i / blocks, i % blocks);
  });
  if (arithmetic_ == Arithmetic::exact) return;
  parallel(heads(), [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      round_head(head);
      for (int64_t block = 0; params_.mean_cell > 0 && block < whole_blocks(head); ++block) average_block(head, block);
      round_means(head);
    }
  });
}

void PackedHeads::attach(int64_t b, int64_t h, Tile& tile) const {
  const int64_t head = head_of(b, h);
  tile.keys = keys(head, 0);
  tile.values = values(head, 0);
  if (arithmetic_ == Arithmetic::exact) return;
  const float* vectors = side(head) + params_.key_blocks() * kBlock;
  tile.int8 = {.key_scale = side(head),
               .key_mean = vectors,
               .value_scale = vectors + stride_,
               .block_scale = arithmetic_ == Arithmetic::int8_values ? block_scale(head, 0) : nullptr,
               .value_mean = vectors + 2 * stride_,
               .balance = vectors + 3 * stride_};
}

void PackedHeads::pack_block(int64_t head, int64_t block) const {
  const int64_t b = head / params_.heads_of_keys(), h = head % params_.heads_of_keys(), first = block * kBlock;
  const int64_t tokens = std::clamp<int64_t>(params_.key_length(b) - first, 0, kBlock);
  transpose(params_.k.row(b, first, h), params_.k.token_stride, tokens, params_.head_dim, keys(head, block));
  copy_rows(params_.v.row(b, first, h), params_.v.token_stride, tokens, params_.head_dim, stride_, values(head, block));
  if (arithmetic_ == Arithmetic::exact && params_.mean_cell > 0 && block < whole_blocks(head))
    average_block(head, block);
}

/// Writes the means of a packed block's cells. In 8-bit arithmetic, the block's keys and values are already rounded.
void PackedHeads::average_block(int64_t head, int64_t block) const {
  const int64_t cell = params_.mean_cell, cells = cells_of_block(), head_dim = params_.head_dim;
  const float inverse = 1.0F / static_cast<float>(cell);
  const float* key_scale = arithmetic_ == Arithmetic::exact ? nullptr : side(head) + block * kBlock;
  float* to = mean_keys(head) + block * cells * head_dim;
  for (int64_t d = 0; d < head_dim; ++d) {
    const float* from = keys(head, block) + d * kBlock;
    for (int64_t c = 0; c < cells; ++c)
      *to++ = inverse * sum(from + c * cell, key_scale == nullptr ? nullptr : key_scale + c * cell, cell);
  }
  to = mean_values(head) + block * cells * stride_;
  const float* from = values(head, block);
  for (int64_t c = 0; c < cells; ++c, to += stride_) {
    std::fill(to, to + stride_, 0.0F);
    for (int64_t i = 0; i < cell; ++i, from += stride_)
      for (int64_t d = 0; d < stride_; ++d) to[d] += from[d];
    if (arithmetic_ == Arithmetic::int8_values) {
      const float* scale = block_scale(head, block);
      for (int64_t d = 0; d < stride_; ++d) to[d] *= scale[d];
    }
    for (int64_t d = 0; d < stride_; ++d) to[d] *= inverse;
  }
}

/// Rounds the means as arithmetic.h describes.
void PackedHeads::round_means(int64_t head) const {
  if (params_.mean_cell == 0) return;
  const int64_t cells = cells_of_block(), blocks = whole_blocks(head), size = cells * params_.head_dim;
  const int64_t record = kBlock / cells;  // number of blocks whose cells form a record
  for (int64_t first = 0; first < blocks; first += record) {
    const int64_t end = std::min(first + record, blocks);
    double largest[kKeyGroups] = {};
    for (int64_t block = first; block < end; ++block)
      for (int64_t i = 0; i < size; ++i)
        largest[mean_group(block)] =
            std::max<double>(largest[mean_group(block)], std::abs(mean_keys(head)[block * size + i]));
    for (int64_t block = first; block < end; ++block) {
      const double scale = int8_scale(largest[mean_group(block)]);
      for (int64_t i = 0; i < size; ++i) {
        float& key = mean_keys(head)[block * size + i];
        key = static_cast<float>(round_int8(key / scale));
      }
      std::fill_n(mean_scale(head) + block * cells, cells, static_cast<float>(scale));
    }
  }
  round_mean_values(head);
}

/// Rounds the means of V. In e4m3, means keep V's scale. In int8, they are stored multiplied by their scale, because a
/// tile uses means of several records, which have different scales.
void PackedHeads::round_mean_values(int64_t head) const {
  float* values = mean_values(head);
  const int64_t cells = whole_blocks(head) * cells_of_block();
  if (arithmetic_ == Arithmetic::int8) {
    for (int64_t i = 0; i < cells * stride_; ++i) values[i] = static_cast<float>(round_e4m3(values[i]));
    return;
  }
  std::vector<float> scale(static_cast<size_t>(stride_));
  for (int64_t first = 0; first < cells; first += kBlock) {
    const int64_t count = std::min(kBlock, cells - first);
    float* record = values + first * stride_;
    round_values(record, count, stride_, scale.data());
    for (int64_t i = 0; i < count; ++i)
      for (int64_t d = 0; d < stride_; ++d) record[i * stride_ + d] *= scale[d];
  }
}

/// Divides each channel of a head's keys by the factor that multiplies the queries of all heads that share these keys.
/// The mean of the keys is already subtracted.
void PackedHeads::balance_keys(int64_t head, float* balance) const {
  const int64_t b = head / params_.heads_of_keys(), first = head % params_.heads_of_keys() * params_.group();
  const int64_t head_dim = params_.head_dim;
  const int64_t tokens = params_.key_length(b), blocks = params_.key_blocks();
  const int64_t queries = balanced_queries(params_.queries, params_.keys, tokens);
  std::vector<double> q_squares(static_cast<size_t>(head_dim), 0.0), k_squares = q_squares;
  for (int64_t h = first; h < first + params_.group(); ++h) {
    for (int64_t t = 0; t < queries; ++t) {
      const float* q = params_.q.row(b, t, h);
      for (int64_t d = 0; d < head_dim; ++d) q_squares[d] += static_cast<double>(q[d]) * q[d];
    }
  }
  const auto each_channel = [&](const auto& f) {  // calls f(d, channel d of a block's 64 keys)
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t d = 0; d < head_dim; ++d) f(d, keys(head, block) + d * kBlock);
  };
  each_channel([&](int64_t d, const float* k) {  // entries past the last key are 0
    for (int64_t i = 0; i < kBlock; ++i) k_squares[d] += static_cast<double>(k[i]) * k[i];
  });
  const double share =
      static_cast<double>(queries * params_.group()) / static_cast<double>(std::max<int64_t>(tokens, 1));
  for (double& square : k_squares) square *= share;
  balance_channels(q_squares, k_squares, {balance, static_cast<size_t>(head_dim)});
  each_channel([&](int64_t d, float* k) {
    for (int64_t i = 0; i < kBlock; ++i) k[i] /= balance[d];
  });
}

/// Rounds a channel of V, from which its mean is already subtracted, to e4m3 and sets its scale.
void PackedHeads::round_channel(int64_t head, int64_t channel, float& scale) const {
  const int64_t tokens = params_.key_length(head / params_.heads_of_keys());
  float* values = this->values(head, 0) + channel;
  double largest = 0;
  for (int64_t t = 0; t < tokens; ++t) largest = std::max<double>(largest, std::abs(values[t * stride_]));
  scale = static_cast<float>(largest > 0 ? largest / kE4m3Max : 1);
  for (int64_t t = 0; t < tokens; ++t)
    values[t * stride_] = static_cast<float>(round_e4m3(static_cast<double>(values[t * stride_]) / scale));
}

/// Subtracts the means of one packed head's keys and values, balances the channels and rounds, all in place. Computes
/// in double; only int8_values rounds V in fp32, as GPUs do.
void PackedHeads::round_head(int64_t head) const {
  const int64_t tokens = params_.key_length(head / params_.heads_of_keys()), head_dim = params_.head_dim;
  float* key_scale = side(head);
  float* key_mean = key_scale + params_.key_blocks() * kBlock;
  float* value_scale = key_mean + stride_;
  float* value_mean = value_scale + stride_;
  float* balance = value_mean + stride_;
  const auto key = [&](int64_t t, int64_t d) -> float& { return keys(head, t / kBlock)[d * kBlock + t % kBlock]; };
  const auto value = [&](int64_t t, int64_t d) -> float& { return values(head, 0)[t * stride_ + d]; };
  std::fill(value_scale, value_scale + stride_, 1.0F);
  for (int64_t d = 0; d < head_dim; ++d) {
    double key_sum = 0, value_sum = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      key_sum += key(t, d);
      value_sum += value(t, d);
    }
    key_mean[d] = static_cast<float>(tokens > 0 ? key_sum / static_cast<double>(tokens) : 0);
    value_mean[d] = static_cast<float>(tokens > 0 ? value_sum / static_cast<double>(tokens) : 0);
    for (int64_t t = 0; t < tokens; ++t) {
      key(t, d) -= key_mean[d];
      value(t, d) -= value_mean[d];
    }
    if (arithmetic_ == Arithmetic::int8) round_channel(head, d, value_scale[d]);
  }
  for (int64_t block = 0; arithmetic_ == Arithmetic::int8_values && block < params_.key_blocks(); ++block)
    round_values(values(head, block), kBlock, stride_, block_scale(head, block));
  balance_keys(head, balance);
  for (int64_t block = 0; block < params_.key_blocks(); ++block) {
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
