// The input of one CPU attention call: pointers, strides and masks. No torch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "attention/block_map.h"
#include "attention/call_types.h"

namespace sparsereel::attention::cpu {

/// A tensor [batch, tokens, heads, head_dim] with contiguous head_dim; strides in elements.
template <typename T>
struct View {
  T* data = nullptr;
  int64_t batch_stride = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;

  T* row(int64_t b, int64_t token, int64_t h) const {
    return data + b * batch_stride + token * token_stride + h * head_stride;
  }
};

/// Returns the number of tokens before the first block that contains text. A block with both video and text is treated
/// as text.
inline int64_t video_part(int64_t tokens, int64_t text_tokens) {
  return text_tokens == 0 ? tokens : (tokens - text_tokens) / kBlock * kBlock;
}

/// A call on a CPU: out = softmax(q k^T * scale) v over the keys that each query may see.
struct KernelParams : CallSizes<int64_t>, CallScores<int64_t, double> {
  View<const float> q{}, k{}, v{};
  View<float> out{};
  float* lse = nullptr;   // [batch, heads, queries], natural log; null if not wanted
  int64_t mean_cell = 0;  // number of tokens that share a mean; 0 if nothing replaces dropped blocks

  int64_t key_length(int64_t b) const { return key_lengths == nullptr ? keys : key_lengths[b]; }
  /// Returns the number of keys that a query sees. It sees the first visible_keys() keys.
  int64_t visible_keys(int64_t b, int64_t query) const {
    const int64_t length = key_length(b);
    return causal ? std::clamp<int64_t>(query + keys - queries + 1, 0, length) : length;
  }
  /// Returns the number of video keys that are not padding.
  int64_t video_keys(int64_t b) const { return std::min(key_length(b), video_part(keys, text_tokens)); }
  /// Returns n such that means may replace the first n key blocks, if query block i drops them. In each of these blocks
  /// all 64 keys are video, and each query of block i sees all of them.
  int64_t blocks_with_means(int64_t b, int64_t query_block) const {
    if (mean_cell == 0) return 0;
    return std::min(video_keys(b), visible_keys(b, query_block * kBlock)) / kBlock;
  }
  int64_t query_blocks() const { return blocks_of(queries); }
  int64_t key_blocks() const { return blocks_of(keys); }
};

/// Runs body(begin, end) over parts of [0, count) in parallel. The caller provides this function, so that the program
/// has only one pool of threads.
using ParallelFor = std::function<void(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body)>;

/// The counts of a kernel, in blocks of 64 x 64 over all batch entries and heads.
struct Counts {
  int64_t kept_blocks = 0;
  int64_t skipped_pv_blocks = 0;
  /// Cost of the means: for each block of queries, the number of means that it attends to, divided by 64 and rounded
  /// up.
  int64_t mean_blocks = 0;
};

/// With this pv_threshold (in log2 units) or a larger one, P.V is never skipped.
constexpr double kNeverSkip = 32;

}  // namespace sparsereel::attention::cpu
