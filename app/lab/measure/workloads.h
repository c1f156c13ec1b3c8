// Which attentions to measure: those of known models by name, and shapes as B,H,N,D. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::app {

/// q, k and v are [batch, tokens, heads, head_dim] each; written B,H,N,D as papers do, with fewer heads of k and v
/// B,H/K,N,D.
struct Shape {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t tokens = 1;
  int64_t head_dim = 64;
  int64_t kv_heads = 0;  // of k and v; 0: as many

  int64_t heads_of_keys() const { return kv_heads == 0 ? heads : kv_heads; }
  double elements() const;      // of q
  double key_elements() const;  // of k, and of v
  std::string text() const;     // "2,30,17776,64", "1,32/8,24576,128"
};

/// What made-up q, k and v look like; inputs.cpp says how each is drawn.
enum class DataKind { gaussian, structured, smooth, loud };

struct Workload {
  std::string name;  // empty for a shape without a name
  Shape shape;
  int64_t text_tokens = 0;  // the last tokens; how many the model has
  bool causal = false;
  std::string token_order = {};  // of captured q, k and v; empty for made-up ones

  bool captured() const { return !token_order.empty(); }

  /// Multiplications and additions of both matrix products over the visible pairs: 4 B H N^2 D, half of it when causal.
  double operations() const;
};

const std::vector<Workload>& known_workloads();

/// Throws Error listing the known names.
Workload find_workload(const std::string& name);

/// "1,4,2336,64;1,32/8,24576,128" -> two shapes; ';' and white space separate. Throws Error naming the one that is not
/// four whole numbers from 1 to 2^30, or whose heads of q are no multiple of those of k and v.
std::vector<Shape> parse_shapes(std::string_view text);

}  // namespace sparsereel::app
