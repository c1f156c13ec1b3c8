// The loop that runs every family's transformer. It fetches the blocks' weights, and skips blocks if the step cache
// says so.
#include "models/transformer/loaded_transformer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <utility>

#include "models/layers/host_memory.h"
#include "models/parallel/group.h"
#include "models/request/attention_run.h"
#include "models/store/weights/layer_weights.h"
#include "models/store/weights/weights.h"
#include "models/transformer/transformer.h"

namespace sparsereel::models {
namespace {

constexpr size_t kMostPlans = 8;  // most token plans that are kept for later inputs

/// Returns the timesteps of one forward pass, taken from its first batch entry.
StepTimes times_of(const TransformerInput& input) {
  const auto first = [](const at::Tensor& times) -> std::vector<double> {
    if (!times.defined()) return {};
    return {times.flatten()[0].item<double>()};
  };
  return {.video = first(input.timesteps),
          .sound = first(input.sound_timesteps),
          .has_keyframes = !input.keyframes.empty()};
}

class BlockLoop final : public LoadedTransformer {
 public:
  BlockLoop(std::unique_ptr<Transformer> transformer, std::unique_ptr<LayerWeights> layers, uint64_t weight_bytes,
            std::vector<uint64_t> block_bytes, bool rounds_again, const at::TensorOptions& options,
            std::unique_ptr<LayerWeights> modulation)
      : transformer_(std::move(transformer)),
        layers_(std::move(layers)),
        modulation_(std::move(modulation)),
        weight_bytes_(weight_bytes),
        block_bytes_(std::move(block_bytes)),
        rounds_again_(rounds_again),
        options_(options) {}

  at::Tensor forward(const at::Tensor& latents, const Conditioning& conditioning, const at::Tensor& timesteps,
                     AttentionRun& run, StepCache* cache) override {
    return predict({.latents = latents, .conditioning = conditioning, .timesteps = timesteps}, run, cache).video;
  }
  Prediction predict(const TransformerInput& given, AttentionRun& run, StepCache* cache) override;
  void prepare(const StepTimes& times) override;
  void collect(AttentionRun& run) override;
  uint64_t weight_bytes() const override { return weight_bytes_; }
  std::vector<uint64_t> block_bytes() const override { return block_bytes_; }
  bool rounds_again() const override { return rounds_again_; }

 private:
  const TokenPlan& plan(const TransformerInput& input, const AttentionRun& run);
  void run_blocks(size_t first, size_t end, Tokens& tokens, Attend& attend);
  void run_blocks(Tokens& tokens, Attend& attend, StepCache& cache);

  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<LayerWeights> layers_;      // weights of transformer_
  std::unique_ptr<LayerWeights> modulation_;  // weights that only the modulation needs; null if there are none
  uint64_t weight_bytes_;
  std::vector<uint64_t> block_bytes_;
  bool rounds_again_;
  at::TensorOptions options_;
  attention::Workspace workspace_;
  // The key is order, grid, rank, number of ranks, and the transformer's positions_key().
  std::map<std::pair<hilbert::TokenOrder, std::vector<int64_t>>, TokenPlan> plans_;
};

const TokenPlan& BlockLoop::plan(const TransformerInput& input, const AttentionRun& run) {
  const hilbert::Grid grid = transformer_->grid_of(input);
  Group* group = run.tokens;
  std::pair key(run.token_order, transformer_->positions_key(input));
  key.second.insert(key.second.end(), {grid.frames, grid.height, grid.width, group == nullptr ? 0 : group->rank(),
                                       group == nullptr ? 0 : group->size()});
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    if (plans_.size() >= kMostPlans) plans_.clear();
    const TokenTables tables = transformer_->tables_of(input, grid);
    found = plans_.emplace(key, make_token_plan(tables, grid, run.token_order, options_, group)).first;
  }
  found->second.group = group;  // a later run may have another group object of the same size
  return found->second;
}

void BlockLoop::run_blocks(size_t first, size_t end, Tokens& tokens, Attend& attend) {
  for (size_t layer = first; layer < end; ++layer) {
    layers_->visit(layer);
    attend.begin_layer(layer);
    transformer_->block(layer, tokens, attend);
  }
}

/// Runs the blocks, or only the first one if the cache reuses the step. The cache decides by what the first block adds
/// to the video tokens. If the other blocks run, the cache remembers what they add to tokens.hidden. It does not
/// remember text of another width (tokens.text), because nothing reads that text after the blocks.
void BlockLoop::run_blocks(Tokens& tokens, Attend& attend, StepCache& cache) {
  at::Tensor first;
  if (cache.undecided()) first = tokens.hidden.video().clone();  // a copy, because blocks change it in place
  run_blocks(0, 1, tokens, attend);
  if (cache.undecided()) cache.decide(first.neg_().add_(tokens.hidden.video()));
  if (cache.reuses()) return tokens.hidden.add(cache.recall());
  at::Tensor rest = tokens.hidden.value().clone();
  run_blocks(1, transformer_->layers(), tokens, attend);
  cache.remember(rest.neg_().add_(tokens.hidden.value()));
}

void BlockLoop::prepare(const StepTimes& times) {
  if (modulation_ == nullptr || !transformer_->lacks_modulation(times)) return;
  transformer_->begin_modulation(times);
  for (size_t layer = 0; layer < transformer_->layers(); ++layer) {
    modulation_->visit(layer);
    transformer_->make_modulation(layer);
  }
  modulation_->release();
}

Prediction BlockLoop::predict(const TransformerInput& given, AttentionRun& run, StepCache* cache) {
  const TransformerInput input = given.to(options_, transformer_->reads_wide_latents());
  const TokenPlan& tokens_plan = plan(input, run);
  if (modulation_ != nullptr) prepare(times_of(given));
  run.per_layer.resize(transformer_->layers());
  Tokens tokens = transformer_->embed(input, tokens_plan);
  Attend attend(run, tokens_plan, tokens.text_tokens, workspace_, tokens.key_lengths);
  cache != nullptr ? run_blocks(tokens, attend, *cache) : run_blocks(0, transformer_->layers(), tokens, attend);
  workspace_.scratch.reset();  // frees memory, which a second expert or the decoder may need
  Prediction prediction = {.video = transformer_->head(tokens, tokens_plan).to(given.latents.scalar_type()),
                           .sound = transformer_->sound_head(tokens)};
  if (prediction.sound.defined()) {
    prediction.sound = prediction.sound.to(given.latents.scalar_type()).contiguous();
    // Every rank computes the sound, but ranks with other numbers of video tokens may round it differently. All take
    // rank 0's sound, because ranks must agree.
    if (tokens_plan.group != nullptr) tokens_plan.group->broadcast(prediction.sound, 0);
  }
  if (run.collects) collect(run);
  return prediction;
}

void BlockLoop::collect(AttentionRun& run) {
  attention::collect_counts(workspace_, run.per_layer);
  run.statistics = {};
  for (const attention::Statistics& layer : run.per_layer) run.statistics += layer;
}

}  // namespace

std::unique_ptr<LoadedTransformer> loaded_transformer(std::unique_ptr<Transformer> transformer,
                                                      const Component& component, at::Device device,
                                                      WeightFormat format, const Streaming& streaming,
                                                      const std::vector<std::string>& unused) {
  if (device.is_cpu()) keep_freed_host_memory();
  const auto reader = std::make_shared<WeightReader>(component, device, format);
  for (const auto& tensor : component.tensors) {
    const std::string& name = tensor.first;  // Clang with OpenMP cannot capture a structured binding in a lambda
    if (std::ranges::any_of(unused, [&](const std::string& part) { return name.find(part) != std::string::npos; }))
      reader->ignore_prefix(name);
  }
  transformer->weights(reader->loads());
  const Slots ends = slots_of([&](const Visit& visit) { transformer->weights(visit); });
  uint64_t bytes = bytes_of(ends, *reader);
  bool again = rounds_again(ends, *reader);
  std::vector<Slots> layers, modulation;
  std::vector<uint64_t> block_bytes;
  for (size_t layer = 0; layer < transformer->layers(); ++layer) {
    layers.push_back(slots_of([&](const Visit& visit) { transformer->weights(layer, visit); }));
    block_bytes.push_back(bytes_of(layers.back(), *reader));
    bytes += block_bytes.back();
    again = again || rounds_again(layers.back(), *reader);
    if (Slots slots = slots_of([&](const Visit& visit) { transformer->modulation_weights(layer, visit); });
        !slots.empty())
      modulation.push_back(std::move(slots));
  }
  for (const Slots& slots : modulation)
    for (const Slot& slot : slots) reader->expect(slot.parameter);
  auto weights = load_layers(reader, std::move(layers), streaming);
  reader->check_complete();
  const bool is_file = !modulation.empty() && !device.is_meta();
  auto passing = is_file ? load_layers(reader, std::move(modulation), Residence::file) : nullptr;
  return std::make_unique<BlockLoop>(std::move(transformer), std::move(weights), bytes, std::move(block_bytes), again,
                                     at::TensorOptions().device(device).dtype(format.dtype), std::move(passing));
}

}  // namespace sparsereel::models
