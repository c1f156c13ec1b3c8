// Runs the classifier: convolutions over nine frames, then a linear layer for each trait.
#include "app/lab/bench/classifier.h"

#include <ATen/ATen.h>

#include "app/tensor_file.h"
#include "hilbert/error.h"

namespace sparsereel::app::bench {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFrames = 9, kSide = 64, kGroups = 8, kFeatures = 48;
constexpr int64_t kFlat = 64 * 5 * 4 * 4;  // channels x frames x height x width after the convolutions

/// A convolution followed by a group norm. `index` is the convolution's position in the network's list of layers, which
/// is part of its tensors' names.
struct Convolution {
  int index;
  std::vector<int64_t> shape, stride, padding;
};

const std::vector<Convolution>& convolutions() {
  static const std::vector<Convolution> layers = {{0, {24, 3, 1, 5, 5}, {1, 2, 2}, {0, 2, 2}},
                                                  {3, {48, 24, 3, 3, 3}, {1, 2, 2}, {1, 1, 1}},
                                                  {6, {64, 48, 3, 3, 3}, {1, 2, 2}, {1, 1, 1}},
                                                  {9, {64, 64, 3, 3, 3}, {2, 2, 2}, {1, 1, 1}}};
  return layers;
}

std::string layer(int index, const char* part) {
  return "body." + std::to_string(index) + "." + part;
}

std::map<std::string, std::vector<int64_t>> shapes() {
  std::map<std::string, std::vector<int64_t>> all;
  for (const Convolution& convolution : convolutions()) {
    const int64_t channels = convolution.shape.front();
    all[layer(convolution.index, "weight")] = convolution.shape;
    for (const auto& name : {layer(convolution.index, "bias"), layer(convolution.index + 1, "weight"),
                             layer(convolution.index + 1, "bias")})
      all[name] = {channels};
  }
  all[layer(13, "weight")] = {kFeatures, kFlat};
  all[layer(13, "bias")] = {kFeatures};
  for (size_t trait = 0; trait < kTraits; ++trait) {
    const std::string head = "heads." + std::string(kTraitNames.at(trait));
    const auto values = static_cast<int64_t>(trait_values(trait));
    all[head + ".weight"] = {values, kFeatures};
    all[head + ".bias"] = {values};
  }
  return all;
}

/// Turns frames [F, H, W, 3] in 0..1 into the classifier's input, [1, 3, 9, 64, 64] in -1..1: picks nine frames and
/// scales them.
at::Tensor view(const at::Tensor& frames) {
  const at::Tensor index = at::linspace(0, static_cast<double>(frames.size(0) - 1), kFrames).round().to(at::kLong);
  const at::Tensor some = frames.index_select(0, index).permute({0, 3, 1, 2}) * 2 - 1;
  return at::adaptive_avg_pool2d(some.contiguous(), {kSide, kSide}).permute({1, 0, 2, 3}).unsqueeze(0).contiguous();
}

}  // namespace

Classifier::Classifier(const fs::path& file) {
  const models::TensorFile weights(file);
  const auto fail = [&](const std::string& what) {
    return bad_file(file, what, "name a file that assets/tiny-training/judge.py wrote");
  };
  const auto expected = shapes();
  for (const auto& [name, shape] : expected) {
    const models::TensorEntry* entry = weights.find(name);
    if (entry == nullptr) throw fail("the tensor " + name + " is missing");
    const at::Tensor stored = entry->shape == shape ? copy_of(weights, *entry) : at::Tensor();
    if (!stored.defined())
      throw fail("the tensor " + name + " has another shape or dtype than in the file of a classifier");
    weights_[name] = stored.to(at::kFloat);
  }
  for (const models::TensorEntry& entry : weights.entries())
    if (!expected.contains(entry.name)) throw fail("a classifier has no tensor " + entry.name);
}

Traits Classifier::read(const at::Tensor& frames) const {
  at::Tensor x = view(frames);
  for (const Convolution& convolution : convolutions()) {
    const int i = convolution.index;
    x = at::conv3d(x, weight(layer(i, "weight")), weight(layer(i, "bias")), convolution.stride, convolution.padding);
    x = at::silu(at::group_norm(x, kGroups, weight(layer(i + 1, "weight")), weight(layer(i + 1, "bias"))));
  }
  const at::Tensor features =
      at::silu(at::linear(x.flatten(1), weight(layer(13, "weight")), weight(layer(13, "bias"))));
  Traits seen{};
  for (size_t trait = 0; trait < kTraits; ++trait) {
    const std::string head = "heads." + std::string(kTraitNames.at(trait));
    const at::Tensor scores = at::linear(features, weight(head + ".weight"), weight(head + ".bias"));
    seen.at(trait) = static_cast<int>(scores.argmax().item<int64_t>());
  }
  return seen;
}

fs::path classifier_beside(const fs::path& model) {
  std::error_code unknown;
  fs::path folder = fs::canonical(model, unknown);
  if (unknown) return {};
  folder += "-training";
  fs::path judge = folder / "judge.safetensors";
  return fs::is_regular_file(judge, unknown) ? judge : fs::path();
}

nlohmann::json verdict(const Traits& told, const Traits& seen) {
  nlohmann::json json = nlohmann::json::object();
  for (size_t trait = 0; trait < kTraits; ++trait)
    if (told.at(trait) >= 0) json[std::string(kTraitNames.at(trait))] = told.at(trait) == seen.at(trait);
  return json;
}

nlohmann::json count_verdicts(const std::vector<nlohmann::json>& verdicts) {
  int64_t prompts = 0, all_right = 0;
  std::array<std::array<int64_t, 2>, kTraits> traits{};
  for (const nlohmann::json& verdict : verdicts) {
    bool right = true;
    for (size_t trait = 0; trait < kTraits; ++trait) {
      const auto found = verdict.find(std::string(kTraitNames.at(trait)));
      if (found == verdict.end()) continue;
      traits.at(trait)[0] += *found == true ? 1 : 0;
      ++traits.at(trait)[1];
      right = right && *found == true;
    }
    prompts += verdict.empty() ? 0 : 1;
    all_right += !verdict.empty() && right ? 1 : 0;
  }
  nlohmann::json json = {{"prompts", prompts}, {"right", all_right}};
  for (size_t trait = 0; trait < kTraits; ++trait) json[std::string(kTraitNames.at(trait))] = traits.at(trait);
  return json;
}

}  // namespace sparsereel::app::bench
