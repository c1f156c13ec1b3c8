// The table of known workloads, and the parser of shapes.
#include "app/lab/measure/workloads.h"

#include <algorithm>
#include <array>
#include <optional>

#include "app/options/nearest.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"

namespace sparsereel::app {
namespace {

constexpr std::string_view kSpace = " \t\n";
constexpr int64_t kLargest = 1 << 30;  // so that sums and products of two sizes do not overflow

/// Parses 1 to kLargest; returns 0 for anything else.
int64_t parse_size(std::string_view text) {
  const int64_t value = parse_number<int64_t>(text).value_or(0);
  return value > 0 && value <= kLargest ? value : 0;
}

/// Removes "/K" from "H/K" and returns K; returns nothing if there is no slash.
std::optional<std::string> take_kv_heads(std::string& heads) {
  const size_t slash = heads.find('/');
  if (slash == std::string::npos) return {};
  const std::string kv_heads = heads.substr(slash + 1);
  heads.resize(slash);
  return kv_heads;
}

Shape parse_shape(const std::string& text) {
  std::array<int64_t, 4> sizes{};
  std::optional<std::string> fewer;
  if (std::vector<std::string> items = split(text, ','); items.size() == sizes.size()) {
    fewer = take_kv_heads(items[1]);
    std::transform(items.begin(), items.end(), sizes.begin(), parse_size);
  }
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end())
    throw bad_input("--shape " + text + " is not four whole numbers from 1 to " + std::to_string(kLargest),
                    "write B,H,N,D (batch, heads, tokens, head_dim), e.g. --shape 2,30,17776,64");
  const int64_t kv_heads = fewer ? parse_size(*fewer) : sizes[1];
  if (kv_heads == 0 || sizes[1] % kv_heads != 0)
    throw bad_input(
        "--shape " + text + " has " + *fewer + " heads of k and v for " + std::to_string(sizes[1]) + " of q",
        "write B,H/K,N,D with a K that divides H, e.g. --shape 1,32/8,24576,128");
  return {.batch = sizes[0],
          .heads = sizes[1],
          .tokens = sizes[2],
          .head_dim = sizes[3],
          .kv_heads = kv_heads == sizes[1] ? 0 : kv_heads};
}

}  // namespace

double Shape::elements() const {
  return static_cast<double>(batch) * static_cast<double>(heads) * static_cast<double>(tokens) *
         static_cast<double>(head_dim);
}

double Shape::key_elements() const {
  return elements() * static_cast<double>(heads_of_keys()) / static_cast<double>(heads);
}

std::string Shape::text() const {
  const std::string fewer = kv_heads == 0 ? "" : "/" + std::to_string(kv_heads);
  return std::to_string(batch) + "," + std::to_string(heads) + fewer + "," + std::to_string(tokens) + "," +
         std::to_string(head_dim);
}

double Workload::operations() const {
  return (causal ? 2 : 4) * shape.elements() * static_cast<double>(shape.tokens);
}

const std::vector<Workload>& known_workloads() {
  // Sizes and text tokens come from the published configurations. Batch 2 holds the two passes of guidance. Comments
  // give frames x height x width.
  static const std::vector<Workload> table = {
      {"cogvideox-2b", {2, 30, 17776, 64}, 226, false},  // 49 x 480 x 720
      {"cogvideox-5b", {2, 48, 17776, 64}, 226, false},
      {"mochi", {1, 24, 44776, 128}, 256, false},        // 163 x 480 x 848
      {"wan-1.3b", {1, 12, 32760, 128}, 0, false},       // 81 x 480 x 832; the text has its own cross attention
      {"wan-14b", {1, 40, 75600, 128}, 0, false},        // 81 x 720 x 1280
      {"open-sora-plan", {1, 24, 86400, 96}, 0, false},  // 93 x 720 x 1280
      {"llama3.1-24k", {1, 32, 24576, 128, 8}, 0, true},
      {"llama3.1-128k", {1, 32, 131072, 128, 8}, 0, true},
      {"flux", {1, 24, 4608, 128}, 0, false},
      {"sd3.5", {2, 38, 4429, 64}, 0, false},
  };
  return table;
}

Workload find_workload(const std::string& name) {
  const std::vector<Workload>& known = known_workloads();
  std::vector<std::string> names(known.size());
  std::transform(known.begin(), known.end(), names.begin(), [](const Workload& workload) { return workload.name; });
  require_choice("--workload " + name, name, names, "give one of them, or --shape B,H,N,D");
  return *std::find_if(known.begin(), known.end(), [&](const Workload& workload) { return workload.name == name; });
}

std::vector<Shape> parse_shapes(std::string_view text) {
  std::string separated(text);
  for (char& c : separated)
    if (kSpace.find(c) != std::string_view::npos) c = ';';
  std::vector<Shape> shapes;
  for (const std::string& item : split(separated, ';'))
    if (!item.empty()) shapes.push_back(parse_shape(item));
  if (shapes.empty()) throw bad_input("--shape is empty", "write B,H,N,D, e.g. --shape 2,30,17776,64");
  return shapes;
}

}  // namespace sparsereel::app
