// Parts of an attention call that tensors, the C library, CPU code and kernels all use. C++17, no torch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "attention/host_device.h"

namespace sparsereel::attention {

enum class Element { fp16, bf16, fp32 };

/// The rows of a tensor [batch, tokens, heads, head_dim] with contiguous head_dim; strides in elements.
struct StridedRows {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
};

enum class Norm { none, layer, rms };

/// The arrays of a norm that q and k each have separately.
template <typename Array>
struct RowNormOf {
  Array weight{}, bias{}, text_weight{}, moments{};
};

/// The prologue: what is applied to q and k before attention in every mode. It is a norm, then the rotary embedding of
/// the video tokens. Array is a tensor or a pointer to floats on the call's device; Pairs is a tensor or a pointer to
/// fp16. An undefined tensor or null pointer means that the array is absent.
template <typename Array, typename Pairs, typename Eps>
struct PrologueOf {
  using Norm = attention::Norm;

  Norm norm = Norm::none;
  bool across_heads = false;  // normalize over all heads x head_dim instead of per head
  Eps eps = static_cast<Eps>(1e-6);
  Array q_weight{}, q_bias{};  // [head_dim]; across heads [heads * head_dim] with q's or k's own heads. Absent: none
  Array k_weight{}, k_bias{};
  Pairs rotary_pairs{};  // rotary_pairs() of the tables, which GPU kernels read; if absent, every call makes them
  Array rotary_cos{}, rotary_sin{};  // [video tokens, head_dim] in token order. Absent: no rotary embedding
  int rotary_tokens = 0;    // number of first tokens to rotate; the code that runs a prologue of pointers sets it
  bool interleaved = true;  // pairs (2i, 2i + 1); else (i, i + head_dim / 2). A pair's entries are equal
  // Weights [head_dim] for the last text_tokens in place of q_weight and k_weight; if absent, these tokens use the
  // latter. Self-attention only, per head and without biases.
  Array text_q_weight{}, text_k_weight{};
  // Angles that differ by head, in place of tables: pair i of head h turns by position . frequency radians. Positions
  // are [video tokens, 4] in token order: three coordinates and one unused. Frequencies are [heads, 3, head_dim / 2].
  // Requires interleaved pairs and norms per head.
  Array rotary_positions{}, rotary_frequencies{};
  // Mean and 1 / deviation of each token, [batch, tokens, 2] from token_moments(), for a norm across heads when the
  // call has only some of the heads. If absent, they are computed from the call's own heads.
  Array q_moments{}, k_moments{};

  SPARSEREEL_HOST_DEVICE RowNormOf<Array> of_queries() const { return {q_weight, q_bias, text_q_weight, q_moments}; }
  SPARSEREEL_HOST_DEVICE RowNormOf<Array> of_keys() const { return {k_weight, k_bias, text_k_weight, k_moments}; }

  bool has_text_weights() const { return exists(text_q_weight) || exists(text_k_weight); }
  bool rotates() const { return exists(rotary_cos) || exists(rotary_pairs) || exists(rotary_frequencies); }
  /// Returns true if the prologue differs by token or by head in a way that tables cannot express.
  bool is_by_part() const { return has_text_weights() || exists(rotary_frequencies); }
  /// Returns true if the norm needs the moments of whole tokens.
  bool normalizes_across_heads() const { return norm != Norm::none && across_heads; }
  /// Returns true if kernels still have to make pairs from the tables.
  bool takes_tables() const { return !exists(rotary_pairs) && exists(rotary_cos); }
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

/// Returns the prologue with each of its arrays replaced by array(it), and with the given pairs. rotary_tokens is not
/// copied.
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
