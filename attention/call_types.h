// Parts of an attention call that the torch operator, the C library, the CPU code and the GPU kernels share. C++17, no
// torch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "attention/host_device.h"

namespace sparsereel::attention {

enum class Element { fp16, bf16, fp32 };

/// The sizes of a call. Size is int64_t on a host. In GPU kernels it is int, because wider arithmetic is slow there.
template <typename Size>
struct CallSizes {
  Size batch = 0;
  Size heads = 0;     // heads of q
  Size kv_heads = 0;  // heads of k and v, a divisor of `heads`; 0 if k and v have as many heads as q
  Size queries = 0;
  Size keys = 0;
  Size head_dim = 0;

  SPARSEREEL_HOST_DEVICE Size heads_of_keys() const { return kv_heads == 0 ? heads : kv_heads; }
  /// Returns the number of neighboring heads of q that share a head of k and v.
  SPARSEREEL_HOST_DEVICE Size group() const { return heads / heads_of_keys(); }
};

/// The rows of a tensor [batch, tokens, heads, head_dim] with contiguous head_dim; strides in elements.
struct StridedRows {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
};

/// The tensors of a call, in memory of its device.
struct CallTensors {
  Element element = Element::fp32;
  StridedRows q{}, k{}, v{}, out{};
  /// [batch]; if set, out is e4m3. The call then writes the factor by which each batch entry's out must be multiplied.
  float* out_scale = nullptr;
  float* lse = nullptr;  // [batch, heads, queries], natural log; null if not wanted
};

/// How a call scales and masks scores. Real is double on a host, float in GPU kernels.
template <typename Size, typename Real>
struct CallScores {
  Real scale = 1;
  Size text_tokens = 0;                  // number of text tokens, the last ones of q and k
  bool causal = false;                   // query i sees keys up to i + keys - queries
  const int64_t* key_lengths = nullptr;  // [batch]; null if there is no padding
};

enum class Norm { none, layer, rms };

/// The arrays of the norm of q, or of the norm of k; see PrologueOf for each array.
template <typename Array>
struct RowNormOf {
  Array weight{}, bias{}, text_weight{}, moments{};
};

/// The prologue: a norm, then a rotary embedding of the video tokens. Every mode applies it to q and k before
/// attention. An Array holds floats, and a Pairs holds fp16 pairs of a cosine and a sine. Both are tensors, or pointers
/// to memory of the call's device. Eps is double or float. An undefined tensor or a null pointer stands for an absent
/// array.
template <typename Array, typename Pairs, typename Eps>
struct PrologueOf {
  using Norm = attention::Norm;

  Norm norm = Norm::none;
  bool across_heads = false;         // normalize each token over all its heads together instead of each head alone
  Eps eps = static_cast<Eps>(1e-6);  // added to the variance (layer norm) or to the mean square (RMS norm)
  Array q_weight{}, q_bias{};        // [head_dim]; with across_heads [heads of q * head_dim]
  Array k_weight{}, k_bias{};        // [head_dim]; with across_heads [heads of k * head_dim]
  Pairs rotary_pairs{};  // result of rotary_pairs() for GPU kernels; if absent, every call computes it from the tables
  Array rotary_cos{}, rotary_sin{};  // tables [video tokens, head_dim] in token order; may be absent
  /// True if the tables also have rows for the text tokens, which are then rotated too. Cannot be combined with norm
  /// weights for text tokens.
  bool rotates_text = false;
  int rotary_tokens = 0;    // how many of the first tokens are rotated; set by the code that starts kernels
  bool interleaved = true;  // true: channels 2i and 2i + 1 are a pair; false: i and i + head_dim / 2 are. Both channels
                            // of a pair have equal entries in the tables
  // Norm weights [head_dim] of the last text_tokens tokens. If absent, these tokens use q_weight and k_weight. For
  // self-attention only, with a norm per head and without biases.
  Array text_q_weight{}, text_k_weight{};
  // Angles that differ by head, in place of tables: pair i of head h turns by the dot product of the token's position
  // and frequencies[h, :, i], in radians. Positions are [video tokens, 4] in token order: three coordinates and one
  // unused value. Frequencies are [heads, 3, head_dim / 2]. Requires interleaved pairs and no norm across heads.
  Array rotary_positions{}, rotary_frequencies{};
  // Mean and 1 / deviation of each token, [batch, tokens, 2], from token_moments(). They are required for a norm across
  // heads if the call has only some of the heads. If absent, they are computed from the heads of the call.
  Array q_moments{}, k_moments{};

  SPARSEREEL_HOST_DEVICE RowNormOf<Array> of_queries() const { return {q_weight, q_bias, text_q_weight, q_moments}; }
  SPARSEREEL_HOST_DEVICE RowNormOf<Array> of_keys() const { return {k_weight, k_bias, text_k_weight, k_moments}; }

  bool has_text_weights() const { return exists(text_q_weight) || exists(text_k_weight); }
  bool rotates() const { return exists(rotary_cos) || exists(rotary_pairs) || exists(rotary_frequencies); }
  /// Returns true if the prologue has norm weights for text tokens or angles that differ by head; tables can express
  /// neither.
  bool is_by_part() const { return has_text_weights() || exists(rotary_frequencies); }
  /// Returns true if the norm needs the mean and deviation over all heads of a token.
  bool normalizes_across_heads() const { return norm != Norm::none && across_heads; }
  /// Returns true if kernels still have to make pairs from the tables.
  bool takes_tables() const { return !exists(rotary_pairs) && exists(rotary_cos); }
  /// Returns the number of tokens that have a rotary position in a call of `queries` tokens, of which the last `text`
  /// are text.
  template <typename Size>
  Size rotated_tokens(Size queries, Size text) const {
    return rotates_text ? queries : queries - text;
  }
  bool is_empty() const { return norm == Norm::none && !rotates(); }

  template <typename Any>
  static bool exists(const Any& array) {
    if constexpr (std::is_pointer_v<Any>) {
      return array != nullptr;
    } else {
      return array.defined();
    }
  }
};

/// The prologue with pointers to memory of the call's device.
using CallPrologue = PrologueOf<const float*, const void*, double>;

/// Returns a copy of the prologue in which array(a) replaces each array `a`, and `pairs` replaces rotary_pairs. Does
/// not copy rotary_tokens.
template <typename To, typename From, typename Convert, typename Pairs>
To with_arrays(const From& from, const Convert& array, const Pairs& pairs) {
  To to;
  to.norm = from.norm;
  to.across_heads = from.across_heads;
  to.eps = static_cast<decltype(to.eps)>(from.eps);
  to.q_weight = array(from.q_weight);
  to.q_bias = array(from.q_bias);
  to.k_weight = array(from.k_weight);
  to.k_bias = array(from.k_bias);
  to.rotary_pairs = pairs;
  to.rotary_cos = array(from.rotary_cos);
  to.rotary_sin = array(from.rotary_sin);
  to.rotates_text = from.rotates_text;
  to.interleaved = from.interleaved;
  to.text_q_weight = array(from.text_q_weight);
  to.text_k_weight = array(from.text_k_weight);
  to.rotary_positions = array(from.rotary_positions);
  to.rotary_frequencies = array(from.rotary_frequencies);
  to.q_moments = array(from.q_moments);
  to.k_moments = array(from.k_moments);
  return to;
}

}  // namespace sparsereel::attention
