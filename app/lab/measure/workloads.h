// The attention workloads to measure: those of known models, by name, and shapes written as B,H,N,D. Does not use
// torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::app {

/// The shape [batch, tokens, heads, head_dim] of q, k and v. The text of a shape has the order of papers: B,H,N,D, or
/// B,H/K,N,D if k and v have K heads.
struct Shape {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t tokens = 1;
  int64_t head_dim = 64;
  int64_t kv_heads = 0;  // heads of k and v; 0 if they have as many as q

  int64_t heads_of_keys() const { return kv_heads == 0 ? heads : kv_heads; }
  double elements() const;      // elements of q
  double key_elements() const;  // elements of k; v has as many
  std::string text() const;     // "2,30,17776,64", "1,32/8,24576,128"
};

/// The distribution of synthetic q, k and v. inputs.cpp describes and draws each.
enum class DataKind { gaussian, structured, smooth, loud };

struct Workload {
  std::string name;  // empty for a shape without a name
  Shape shape;
  int64_t text_tokens = 0;  // text tokens of the model, which come last
  bool causal = false;
  std::string token_order = {};  // token order in which captured q, k and v are measured; empty for synthetic data

  bool captured() const { return !token_order.empty(); }

  /// Returns the number of multiplications and additions in Q.K and P.V: 4 B H N^2 D, or half of that if causal.
  double operations() const;
};

const std::vector<Workload>& known_workloads();

/// Returns the workload. Throws Error listing the known names.
Workload find_workload(const std::string& name);

/// Parses shapes separated by ';' or white space: "1,4,2336,64;1,32/8,24576,128" gives two. Throws Error for a shape
/// that is not four whole numbers from 1 to 2^30, or if the heads of q are no multiple of the heads of k and v.
std::vector<Shape> parse_shapes(std::string_view text);

}  // namespace sparsereel::app
