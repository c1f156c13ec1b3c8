// Checks the sizes, prologue, policy and pointers of a call.
#include "attention/core/check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "attention/core/refusal.h"

namespace sparsereel::attention {
namespace {

[[noreturn]] void refuse_argument(const std::string& cause, const std::string& remedy) {
  throw Refusal(SPARSEREEL_BAD_ARGUMENT, cause, remedy);
}

void check_size(int64_t size, const char* name) {
  if (size < 1 || size > std::numeric_limits<int32_t>::max())
    refuse_argument(std::string(name) + " is " + std::to_string(size), "pass at least 1 and at most 2^31 - 1");
}

/// Largest number of elements of a tensor or block map. No memory holds more, and products of sizes below this limit
/// stay below 2^63.
constexpr int64_t kMostElements = int64_t{1} << 48;

/// Returns the product of factors of at least 0. Throws Refusal if the product is above kMostElements; the message then
/// says that `name` has too many elements.
int64_t checked_product(std::initializer_list<int64_t> factors, const std::string& name) {
  int64_t product = 1;
  for (const int64_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product) || product > kMostElements)
      refuse_argument(name + " has more than 2^48 elements", "pass smaller sizes or strides");
  return product;
}

/// Throws Refusal if a tensor or the map of blocks has more than kMostElements elements.
void check_products(const Call& call) {
  const auto check_elements = [&](int64_t tokens, int64_t heads, const char* name) {
    checked_product({call.batch, tokens, heads, call.head_dim}, name);
  };
  check_elements(call.queries, call.heads, "q");
  check_elements(call.keys, call.heads_of_keys(), "k");
  checked_product({call.batch, call.heads, blocks_of(call.queries), blocks_of(call.keys)}, "the map of blocks");
}

/// Checks norm weights for text tokens, and rotary angles that differ by head.
void check_by_part(const Call& call) {
  const CallPrologue& prologue = call.prologue;
  if ((prologue.rotary_positions == nullptr) != (prologue.rotary_frequencies == nullptr))
    refuse_argument("prologue has only one of rotary_positions and rotary_frequencies", "pass both or neither");
  if (!prologue.is_by_part()) return;
  const bool has_tables = prologue.rotary_cos != nullptr || prologue.rotary_pairs != nullptr;
  if (prologue.rotary_frequencies != nullptr && has_tables)
    refuse_argument("prologue has both rotary_frequencies and rotary tables", "pass one of them");
  if (prologue.rotary_frequencies != nullptr && call.heads_of_keys() != call.heads)
    refuse_argument("prologue has rotary_frequencies, which differ from head to head, but k has fewer heads than q",
                    "use them where k has as many heads as q");
  if (prologue.across_heads)
    refuse_argument("prologue has weights of text tokens or rotary_frequencies, but sets across_heads",
                    "use them without across_heads");
  if (!prologue.interleaved)
    refuse_argument("prologue has weights of text tokens or rotary_frequencies, but interleaved is not set",
                    "set interleaved");
  if (!prologue.has_text_weights()) return;
  if (prologue.rotates_text)
    refuse_argument("prologue has text_q_weight or text_k_weight, but sets rotates_text",
                    "use weights of text tokens where only video tokens are rotated");
  if (prologue.norm == Norm::none)
    refuse_argument("prologue has text_q_weight or text_k_weight without a norm", "set norm to layer or rms");
  if (prologue.q_bias != nullptr || prologue.k_bias != nullptr)
    refuse_argument("prologue has text_q_weight or text_k_weight with a bias", "leave q_bias and k_bias out");
  if (call.queries != call.keys)
    refuse_argument("prologue has text_q_weight or text_k_weight for " + std::to_string(call.queries) +
                        " queries and " + std::to_string(call.keys) + " keys",
                    "use weights of text tokens for self-attention only");
}

void check_prologue(const Call& call) {
  const CallPrologue& prologue = call.prologue;
  const bool weighted = prologue.q_weight != nullptr || prologue.q_bias != nullptr || prologue.k_weight != nullptr ||
                        prologue.k_bias != nullptr;
  if (weighted && prologue.norm == Norm::none)
    refuse_argument("prologue has weights or biases, but norm none",
                    "set norm to layer or rms, or leave the weights and biases out");
  if ((prologue.rotary_cos == nullptr) != (prologue.rotary_sin == nullptr))
    refuse_argument("prologue has only one of rotary_cos and rotary_sin", "pass both or neither");
  check_by_part(call);
  if ((prologue.q_moments == nullptr) != (prologue.k_moments == nullptr))
    refuse_argument("prologue has only one of q_moments and k_moments", "pass both or neither");
  if (prologue.q_moments != nullptr && !prologue.normalizes_across_heads())
    refuse_argument("prologue has q_moments and k_moments, but no norm across heads", "leave the moments out");
  if (!prologue.rotates()) return;
  if (call.queries != call.keys)
    refuse_argument(
        "prologue rotates " + std::to_string(call.queries) + " queries and " + std::to_string(call.keys) + " keys",
        "use a rotary embedding for self-attention only, where these numbers are equal");
  if (call.head_dim % 2 != 0)
    refuse_argument("prologue rotates heads of an odd head_dim, " + std::to_string(call.head_dim),
                    "use an even head_dim");
}

/// The size of a dimension, and its stride.
struct Extent {
  int64_t size, stride;
};

std::array<Extent, 3> extents_of(const StridedRows& rows, int64_t batch, int64_t tokens, int64_t heads) {
  return {{{batch, rows.batch_stride}, {tokens, rows.token_stride}, {heads, rows.head_stride}}};
}

void check_tensor(const StridedRows& rows, const std::array<Extent, 3>& extents, const char* name) {
  if (rows.data == nullptr)
    refuse_argument(std::string(name) + " is null", "point it to [batch, tokens, heads, head_dim]");
  int64_t reach = 0;
  for (const auto& [size, stride] : extents) {
    if (size == 1) continue;
    if (stride < 0)
      refuse_argument(std::string(name) + " has a stride of " + std::to_string(stride), "pass strides of at least 0");
    reach += checked_product({size - 1, stride}, name);
  }
  checked_product({reach}, name);
}

/// Throws Refusal if rows of `out` overlap. Goes through the dimensions by increasing stride: each stride must be at
/// least as long as the elements that the dimensions with smaller strides cover.
void check_apart(std::array<Extent, 3> extents, int64_t head_dim) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.stride < b.stride; });
  int64_t inside = head_dim;
  for (const auto& [size, stride] : extents) {
    if (size == 1) continue;
    if (stride < inside)
      refuse_argument("out has a stride of " + std::to_string(stride) + ", which makes its rows overlap",
                      "pass a stride of at least " + std::to_string(inside) + " elements");
    inside = stride * (size - 1) + inside;
  }
}

}  // namespace

void check_sizes(const Call& call) {
  check_size(call.batch, "batch");
  check_size(call.heads, "heads");
  if (call.kv_heads < 0 || (call.kv_heads > 0 && call.heads % call.kv_heads != 0))
    refuse_argument("kv_heads is " + std::to_string(call.kv_heads) + ", heads is " + std::to_string(call.heads),
                    "pass a divisor of heads, or 0 if k and v have as many heads as q");
  check_size(call.queries, "queries");
  check_size(call.keys, "keys");
  if (call.head_dim < kMinHeadDim || call.head_dim > kMaxHeadDim)
    throw Refusal(SPARSEREEL_UNSUPPORTED, "head_dim is " + std::to_string(call.head_dim), "use one from 16 to 256");
  check_products(call);
}

void check(const Call& call) {
  check_sizes(call);
  validate(call.policy);
  if (call.quantized && call.policy.arithmetic == 16)
    refuse_argument("a quantized call computes every block in 8 bits, but arithmetic is 16",
                    "set arithmetic to 8, or use full attention");
  if (const auto given = std::ssize(call.policy.heads); given != 0 && given != call.heads)
    refuse_argument("the policy has " + std::to_string(given) + " heads, q has " + std::to_string(call.heads),
                    "pass one policy for each head, or none");
  if (call.text_tokens < 0 || call.text_tokens > std::min(call.queries, call.keys))
    refuse_argument("text_tokens is " + std::to_string(call.text_tokens),
                    "pass at least 0, and at most the number of queries and of keys");
  if (const HeadPart* part = call.part; part != nullptr && (part->first < 0 || part->first > part->all - call.heads))
    refuse_argument("the " + std::to_string(call.heads) + " heads from " + std::to_string(part->first) +
                        " on are not among all " + std::to_string(part->all),
                    "pass the first of these heads and the number of all heads");
  if (!std::isfinite(call.scale)) refuse_argument("scale is not finite", "pass a finite scale");
  if (call.map_rows != kBlock && call.map_rows != 2 * kBlock)
    refuse_argument("map_rows is " + std::to_string(call.map_rows),
                    "pass 64 or 128, the queries that share a row of the block map");
  check_prologue(call);
}

void check_key_lengths(const int64_t* lengths, int64_t batch, int64_t keys) {
  const auto [least, most] = std::minmax_element(lengths, lengths + batch);
  if (*least < 0 || *most > keys)
    refuse_argument("key_lengths reach from " + std::to_string(*least) + " to " + std::to_string(*most),
                    "pass lengths from 0 to " + std::to_string(keys) + ", the number of keys");
}

void check_gpu_sizes(const Call& call) {
  // The largest query tile of all kernels. The rows of queries are padded to whole tiles.
  constexpr int64_t kLargestTile = 192;
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max(), kMostAlongAxis = 65'535;
  const auto check_most = [](int64_t count, int64_t most, const std::string& name) {
    if (count > most)
      throw Refusal(SPARSEREEL_UNSUPPORTED, std::to_string(count) + " " + name + " on a GPU are too many",
                    "use at most " + std::to_string(most) + " in a call");
  };
  const int64_t tokens = std::max(call.queries, call.keys);
  check_most(tokens, kMostGpuTokens, "tokens");
  const int64_t rows = (tokens / kLargestTile + 1) * kLargestTile;
  check_most(call.batch, kMostAlongAxis, "batch entries");
  check_most(std::max(call.heads, call.all_heads()), kMostRows / (call.batch * rows),
             "heads of " + std::to_string(call.batch) + " x " + std::to_string(tokens) + " tokens");
  const bool drops_by_choice = call.map == nullptr && !call.is_dense();
  if (call.policy.arithmetic != 16 || drops_by_choice) check_most(rows / kBlock, kMostAlongAxis, "blocks of 64 tokens");
  if (call.mean_cell() > 0)
    check_most(call.batch * call.heads_of_keys(), kMostAlongAxis, "heads with means for dropped blocks");
  if (!call.policy.heads.empty())
    check_most(call.batch * call.heads, kMostAlongAxis, "heads with policies of their own");
  if (!call.prologue.is_empty()) check_most(call.heads, kMostAlongAxis, "heads with a prologue");
}

void check_capability(int device, int capability) {
  if (capability >= 80) return;
  throw Refusal(SPARSEREEL_NO_DEVICE,
                "GPU " + std::to_string(device) + " has compute capability " + std::to_string(capability / 10) + "." +
                    std::to_string(capability % 10),
                "use a GPU of 8.0 or newer, or the CPU");
}

void check_rows(const Call& call) {
  const auto keys_like = [&](const StridedRows& rows) {
    return extents_of(rows, call.batch, call.keys, call.heads_of_keys());
  };
  const auto queries_like = [&](const StridedRows& rows) {
    return extents_of(rows, call.batch, call.queries, call.heads);
  };
  check_tensor(call.q, queries_like(call.q), "q");
  check_tensor(call.k, keys_like(call.k), "k");
  check_tensor(call.v, keys_like(call.v), "v");
  check_tensor(call.out, queries_like(call.out), "out");
  check_apart(queries_like(call.out), call.head_dim);
}

}  // namespace sparsereel::attention
