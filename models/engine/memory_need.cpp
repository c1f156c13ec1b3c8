// Adds up, for each stage, the largest tensors and the weights that are in memory at the same time.
#include "models/engine/memory_need.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "hilbert/error.h"
#include "models/engine/components.h"
#include "models/engine/video_bytes.h"
#include "models/files/config_fields.h"
#include "models/layers/fp8.h"
#include "models/parallel/share.h"
#include "models/store/weights/device.h"

namespace sparsereel::models {
namespace {

constexpr double kColors = 3;

/// Returns the number of elements in memory during a block's attention: q, k and v, the input of their projection, and
/// the residual.
double block_elements(const Plan& plan, const ModelSpec& spec) {
  const double tokens = token_count(spec, plan.latent, plan.text_tokens);
  return 5 * passes_at_once(plan) * tokens * model_width(spec);
}

/// Returns the bytes of the frames that the VAE's encoder takes. All of them are in memory at the same time.
double encoder_frames(const Plan& plan, const ModelSpec& spec) {
  if (!plan.has_images()) return 0;
  const double element = plan.encodes_in_vae_dtype && plan.vae_dtype != "fp32" ? 2 : 4;
  return element * video_elements(plan) / (spec.image.encodes_video ? 1 : static_cast<double>(plan.num_frames));
}

/// Bytes needed on one device: all of them, those that a run without step cache would save, and those of weights.
struct Need {
  double all = 0, cache = 0, weights = 0;
};

std::string list_remedy(const Need& need, double obtainable, const std::vector<std::string>& lighter) {
  std::vector<std::string> loadings = lighter;
  if (need.weights > obtainable) {
    loadings.emplace_back("a machine with more memory");
    return "use " + list_of(loadings);
  }
  const bool fits_without_cache = need.all - need.cache <= obtainable;
  return (loadings.empty() ? "" : "use " + list_of(loadings) + ", or ") +
         std::string(fits_without_cache ? "leave the cache out, or " : "") +
         "choose a smaller width or height, or fewer frames";
}

void check(const Plan& plan, const Need& need, c10::Device device,
           const std::function<std::vector<std::string>()>& lighter) {
  const auto obtainable = static_cast<double>(obtainable_memory(device));
  if (need.all <= obtainable) return;
  const auto text = [](double bytes) { return human_bytes(static_cast<uint64_t>(std::min(bytes, 1e18))); };
  const std::string there_are = ", but only " + text(obtainable) + " are available on " + device.str();
  // If false, the memory without the weights is too large already, so loading the weights in another way does not help.
  const bool without_weights = need.all - need.weights <= obtainable;
  const std::string remedy =
      list_remedy(need, obtainable, without_weights && lighter ? lighter() : std::vector<std::string>());
  if (need.weights > obtainable)
    throw bad_input("the transformer's weights alone need " + text(need.weights) + " of memory" + there_are, remedy);
  throw bad_input("a video of " + std::to_string(plan.width) + " x " + std::to_string(plan.height) + " pixels and " +
                      std::to_string(plan.num_frames) + " frames needs at least " + text(need.all) + " of memory" +
                      there_are,
                  remedy);
}

Dtype stored(at::ScalarType dtype) {
  return dtype == at::kFloat ? Dtype::f32 : dtype == at::kHalf ? Dtype::f16 : Dtype::bf16;
}

/// Returns an upper bound of the bytes that stay in mapped files: tensors, also packed ones, that the run uses in the
/// form that the files hold. It is a bound, because some of them are copied to make them contiguous.
double mapped_bytes(const Component& component, const WeightFormat& format) {
  double bytes = 0;
  if (format.fp8) return bytes;
  for (const auto& [name, place] : component.tensors) {
    const Dtype dtype = place.second->dtype;
    const auto layer = component.quantized.find(name);
    if (layer != component.quantized.end() && layer->second.is_joined()) continue;  // joined layers are copied
    if (format.int8 && dtype != Dtype::i8) continue;  // a large tensor is quantized, which copies it
    const bool stays = is_small(dtype) ? has_only_low_rank(component, name)
                                       : dtype == stored(format.dtype) && !component.deltas.contains(name);
    if (stays) bytes += static_cast<double>(place.second->bytes);
  }
  return bytes;
}

bool fits(const WeightNeed& need, c10::Device device) {
  const auto has = [](c10::Device where, double bytes) {
    return bytes <= static_cast<double>(obtainable_memory(where));
  };
  return has(at::kCPU, need.host) && (device.is_cpu() || has(device, need.device));
}

}  // namespace

WeightNeed weight_need(const Checkpoint& checkpoint, const ModelSpec& spec, const Loading& loading) {
  WeightNeed need;
  for (const ExpertSpec& expert : spec.experts) {
    const auto bytes = static_cast<double>(weight_bytes(checkpoint, expert.role, loading.format));
    need.parameters = std::max(need.parameters, weight_count(checkpoint, expert.role));
    if (loading.device.is_cpu())
      need.host = std::max(need.host, bytes - mapped_bytes(checkpoint.component(expert.role), loading.format));
    else
      (loading.offload ? need.host : need.device) = std::max(loading.offload ? need.host : need.device, bytes);
  }
  return need;
}

std::vector<std::string> lighter_loadings(const Checkpoint& checkpoint, const ModelSpec& spec, const Loading& loading) {
  std::vector<std::pair<std::string, Loading>> ways;
  const auto add = [&](const std::string& words, const auto& change) {
    ways.emplace_back(words, loading);
    change(ways.back().second);
  };
  const auto in_bf16 = [](Loading& way) { way.format.dtype = at::kBFloat16; };
  const std::string format = faster_8_bits(loading.device);
  const auto in_8_bits = [&](Loading& way) { (format == "fp8" ? way.format.fp8 : way.format.int8) = true; };
  const auto offloaded = [](Loading& way) { way.offload = true; };
  const bool in_16_bits = !loading.format.fp8 && !loading.format.int8;
  if (!loading.device.is_cpu() && !loading.offload) add("offload", offloaded);
  if (loading.format.dtype == at::kFloat) add("dtype bf16", in_bf16);
  if (in_16_bits) add("weights " + format, in_8_bits);
  if (in_16_bits && !loading.device.is_cpu() && !loading.offload)
    add("offload with weights " + format, [&](Loading& way) { offloaded(way), in_8_bits(way); });
  std::vector<std::string> words;
  for (const auto& [each, way] : ways)
    if (fits(weight_need(checkpoint, spec, way), loading.device)) words.push_back(each);
  return words;
}

MemoryNeed least_memory(const Plan& plan, bool decode, const ModelSpec& spec, c10::Device device, c10::ScalarType dtype,
                        const WeightNeed& weights, int64_t ranks) {
  const auto element = static_cast<double>(c10::elementSize(dtype));
  // Ranks divide the passes, the tokens or heads, and the rows of frames among themselves.
  const double part = device.is_cpu() ? 1 : 1 / static_cast<double>(ranks);
  const double denoising = part * block_elements(plan, spec) * element;
  const double cache = part * cache_elements(plan, spec) * element;
  // Decoding holds the video, whether in tiles or not, and its conversion to fp32 frames.
  const double video = decode ? video_elements(plan) * element : 0;
  const double frames = decode ? video_elements(plan) * static_cast<double>(sizeof(float)) : 0;
  const double decoding = device.is_cpu() ? video + frames : part * video;
  const double held = device.is_cpu() ? weights.host : weights.device;
  // The needs of decoding and of encoding images do not include the transformer, which is not in memory then.
  const double around = std::max(decoding, encoder_frames(plan, spec));
  const double all = std::max(held + denoising + cache, around);
  const double saved = all - std::max(held + denoising, around);
  if (device.is_cpu()) return {.host = all, .cache = saved, .weights = weights};
  return {.host = std::max(weights.host, frames), .device = all, .cache = saved, .weights = weights};
}

void check_memory(const Plan& plan, const MemoryNeed& need, c10::Device device,
                  const std::function<std::vector<std::string>()>& lighter) {
  check(plan, {need.host, device.is_cpu() ? need.cache : 0, need.weights.host}, c10::kCPU, lighter);
  if (!device.is_cpu()) check(plan, {need.device, need.cache, need.weights.device}, device, lighter);
}

namespace {

/// Bytes that the program and libtorch's libraries take on a CPU before any weights are loaded.
constexpr uint64_t kProcess = 190 << 20;

/// Returns the larger of two needs: the bytes of the VAE's encoder for these frames, and the bytes of the text
/// encoder's vision tower. The two are never in memory at the same time. `given` is the size of the VAE encoder's input
/// in bytes.
WorkBytes work_on_images(const Checkpoint& checkpoint, const ModelSpec& spec, const Vae& vae, uint64_t given,
                         at::ScalarType text, at::IntArrayRef size) {
  const WorkBytes encoding = {.weights = vae.weights().bytes,
                              .activations = given + vae.untiled_encode_bytes(size[0], size[1], size[2])};
  if (!spec.image.text_patches) return encoding;
  const WorkBytes looking = text_vision_bytes(checkpoint, text, *spec.image.text_patches, size[1], size[2]);
  return std::max(encoding, looking, [](const auto& a, const auto& b) { return a.total() < b.total(); });
}

/// Estimates the memory for encoding images. The VAE's encoder, in fp32, and the text encoder's vision tower, in the
/// dtype `text`, are in memory one after the other, and no other component is.
MemoryEstimate likely_of_images(const Checkpoint& checkpoint, const ModelSpec& spec, const LatentSize& size,
                                const std::string& name, at::ScalarType text) {
  const int64_t frames = spec.image.encodes_video ? decoded_frames(spec, size.frames) : 1;
  const int64_t height = size.height * spec.stride[1], width = size.width * spec.stride[2];
  const auto given = static_cast<uint64_t>(kColors * static_cast<double>(frames * height * width));
  const auto vae = describe_vae(checkpoint, at::kFloat, VaeParts::encoder);
  const WorkBytes work = work_on_images(checkpoint, spec, *vae, given * sizeof(float), text, {frames, height, width});
  return {.dtype = name, .weights = work.weights, .activations = work.activations, .process = kProcess};
}

MemoryEstimate likely_in(const Checkpoint& checkpoint, const ModelSpec& spec, const LatentSize& size,
                         const std::string& name, const WeightFormat& format, int64_t ranks) {
  const uint64_t element = c10::elementSize(format.dtype);
  uint64_t transformer = 0;
  for (const ExpertSpec& expert : spec.experts)
    transformer = std::max(transformer, likely_weight_bytes(checkpoint, expert.role, format));
  const double passes = spec.takes_guidance ? 2 : 1;
  const double tokens = token_count(spec, size, spec.text_length) / static_cast<double>(ranks);
  const double block = widest_block(spec, tokens, passes, element);
  // For a VAE that chooses its own number formats, the dtype only tells if it runs on a CPU (fp32) or a GPU; see
  // described_vae_dtype(). Runs in fp32 count as runs on a CPU.
  const bool is_wide = spec.vae == Precision::fp32 && spec.takes_vae_dtype;
  const at::ScalarType vae_dtype = is_wide ? at::kFloat : format.dtype;
  const auto vae = describe_vae(checkpoint, vae_dtype);
  const double decoding = untiled_decoding(*vae, spec, size, ranks);
  MemoryEstimate video = {.dtype = name,
                          .weights = transformer + vae->weights().bytes,
                          .activations = whole_bytes(std::max(block, decoding)),
                          .process = kProcess};
  std::vector<MemoryEstimate> stages = {std::move(video)};
  stages.push_back({.dtype = name,
                    .weights = likely_weight_bytes(checkpoint, "text_encoder", format),
                    .activations = 0,
                    .process = kProcess});
  if (spec.image.any()) stages.push_back(likely_of_images(checkpoint, spec, size, name, format.dtype));
  return *std::ranges::max_element(stages, {}, &MemoryEstimate::total);
}

/// Estimates the memory of a run, and the memory of each rank if 2, 4 or 8 ranks make the video together.
MemoryEstimate likely_for_all(const Checkpoint& checkpoint, const ModelSpec& spec, const LatentSize& size,
                              const std::string& name, const WeightFormat& format) {
  MemoryEstimate estimate = likely_in(checkpoint, spec, size, name, format, 1);
  for (const int64_t ranks : {2, 4, 8})
    estimate.of_each.emplace_back(ranks, likely_in(checkpoint, spec, size, name, format, ranks).total());
  return estimate;
}

}  // namespace

namespace {

/// Returns true if a stage that needs these bytes must work in pieces, because less than a quarter of the free memory
/// would stay free.
bool is_tight(double bytes, c10::Device device) {
  return bytes > 0.75 * static_cast<double>(free_memory(device));
}

/// Returns true if the memory plan, or `offload on`, asks a stage to work in pieces even if more memory is free.
bool takes_little(const Loading& loading, bool MemoryPlan::*asks) {
  return loading.plan ? (*loading.plan).*asks : loading.offload;
}

StageEstimate likely_text(const Checkpoint& checkpoint, const RunFormat& format) {
  StageEstimate stage = {.stage = "text", .weights = likely_weight_bytes(checkpoint, "text_encoder", format.text)};
  stage.in_pieces = takes_little(format.transformer, &MemoryPlan::streams_text) ||
                    is_tight(static_cast<double>(stage.weights), format.transformer.device);
  stage.least = load_text_encoder(checkpoint.component("text_encoder"), at::kMeta, format.text)->streamed_bytes();
  return stage;
}

StageEstimate likely_image(const Checkpoint& checkpoint, const ModelSpec& spec, const Plan& plan,
                           const RunFormat& format) {
  const auto vae = describe_vae(checkpoint, format.encoder, VaeParts::encoder);
  const int64_t frames = spec.image.encodes_video ? plan.decoded_frames : 1;
  const uint64_t given = whole_bytes(encoder_frames(plan, spec));
  const WorkBytes work =
      work_on_images(checkpoint, spec, *vae, given, format.text.dtype, {frames, plan.height, plan.width});
  StageEstimate stage = {.stage = "image", .weights = work.weights, .activations = work.activations};
  stage.least = stage.weights + given;
  stage.in_pieces =
      spec.takes_vae_tiling && (takes_little(format.transformer, &MemoryPlan::tiles) ||
                                is_tight(static_cast<double>(stage.activations), format.transformer.device));
  return stage;
}

/// Estimates the denoising stage. An offloaded transformer has two blocks on the GPU at a time.
StageEstimate likely_denoising(const WeightNeed& need, const ModelSpec& spec, const Plan& plan, const Loading& loading,
                               int64_t ranks) {
  const double share = loading.device.is_cpu() ? 1 : static_cast<double>(ranks);
  const double computed = step_bytes(plan, spec, c10::elementSize(loading.format.dtype));
  StageEstimate stage = {.stage = "denoise", .activations = whole_bytes(computed / share)};
  if (loading.device.is_cpu()) {
    stage.weights = whole_bytes(need.host);
  } else if (loading.plan) {
    stage.weights = loading.plan->weight_bytes;
    stage.host = loading.plan->host_bytes;
  } else {
    const double blocks = std::min(2.0, static_cast<double>(spec.layers)) / static_cast<double>(spec.layers);
    stage.weights = whole_bytes(loading.offload ? blocks * need.host : need.device);
    stage.host = whole_bytes(need.host);
  }
  return stage;
}

/// Estimates the decoding stage. With automatic tiling, it works in tiles if memory is short.
StageEstimate likely_decoding(const Checkpoint& checkpoint, const ModelSpec& spec, const Plan& plan,
                              const RunFormat& format, int64_t ranks) {
  const c10::Device device = format.transformer.device;
  const at::ScalarType vae_dtype = described_vae_dtype(spec, format.vae, device);
  const auto vae = describe_vae(checkpoint, vae_dtype);
  const int64_t pieces = device.is_cpu() || plan.vae_tiling == VaeTiling::on ? 1 : std::min(ranks, plan.latent.height);
  const double decoding = untiled_decoding(*vae, spec, plan.latent, pieces);
  StageEstimate stage = {
      .stage = "decode", .weights = vae_bytes(*vae, vae_dtype, device), .activations = whole_bytes(decoding)};
  const bool offloaded = takes_little(format.transformer, &MemoryPlan::tiles) && pieces == 1;
  if (spec.takes_vae_tiling)
    stage.in_pieces = plan.vae_tiling == VaeTiling::on ||
                      (plan.vae_tiling == VaeTiling::automatic && (offloaded || is_tight(decoding, device)));
  const double frames = video_elements(plan) * sizeof(float);
  stage.least = whole_bytes(video_elements(plan) * static_cast<double>(c10::elementSize(format.vae)) +
                            (device.is_cpu() ? frames : 0));
  if (!device.is_cpu()) stage.host = whole_bytes(frames);
  return stage;
}

/// Returns the remedy for a lack of memory; empty if there is memory for the stage.
std::string remedy_of(const StageEstimate& stage, const MemoryNeed& need, c10::Device device,
                      const std::function<std::vector<std::string>()>& lighter) {
  const auto obtainable = static_cast<double>(obtainable_memory(device));
  const auto total = static_cast<double>(stage.in_pieces ? stage.least : stage.total());
  const auto weights = static_cast<double>(stage.weights);
  const std::string smaller = "choose a smaller width or height, or fewer frames";
  if (total > obtainable && stage.stage == "denoise") {
    const bool is_for_weights = total - weights <= obtainable;
    return list_remedy({total, need.cache, weights}, obtainable,
                       is_for_weights ? lighter() : std::vector<std::string>());
  }
  if (total > obtainable) return (stage.in_pieces ? "" : "use vae_tiling auto, or ") + smaller;
  if (static_cast<double>(stage.host) <= static_cast<double>(obtainable_memory(c10::kCPU))) return {};
  return stage.stage == "decode" ? smaller : "use " + list_of({"weights fp8", "a machine with more memory"});
}

}  // namespace

std::vector<StageEstimate> likely_stages(const Checkpoint& checkpoint, const ModelSpec& spec, const Plan& plan,
                                         const RunFormat& format, int64_t ranks) {
  const Loading& loading = format.transformer;
  std::vector<StageEstimate> stages = {likely_text(checkpoint, format)};
  if (plan.has_images()) stages.push_back(likely_image(checkpoint, spec, plan, format));
  const WeightNeed weights = weight_need(checkpoint, spec, loading);
  stages.push_back(likely_denoising(weights, spec, plan, loading, ranks));
  stages.push_back(likely_decoding(checkpoint, spec, plan, format, ranks));
  const MemoryNeed need =
      least_memory(plan, /*decode=*/true, spec, loading.device, loading.format.dtype, weights, ranks);
  for (StageEstimate& stage : stages)
    stage.remedy = remedy_of(stage, need, loading.device, [&] { return lighter_loadings(checkpoint, spec, loading); });
  return stages;
}

std::vector<MemoryEstimate> likely_memory(const Checkpoint& checkpoint, const ModelSpec& spec, const LatentSize& size) {
  std::vector<MemoryEstimate> all = {likely_for_all(checkpoint, spec, size, "bf16", at::kBFloat16),
                                     likely_for_all(checkpoint, spec, size, "fp32", at::kFloat)};
  const auto shrinks = [&](const std::string& role) { return has_fp8_layers(checkpoint, role); };
  const bool any = shrinks("text_encoder") || std::ranges::any_of(spec.experts, shrinks, &ExpertSpec::role);
  if (any) all.push_back(likely_for_all(checkpoint, spec, size, "fp8", {at::kBFloat16, /*in_fp8=*/true}));
  return all;
}

}  // namespace sparsereel::models
