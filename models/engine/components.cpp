// Finds the loader of each component by its class name.
#include "models/engine/components.h"

#include <algorithm>
#include <numeric>

#include "hilbert/error.h"
#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

/// Returns the table of loaders: those of the published families, and those that add_loaders() has added.
ComponentLoaders& loaders() {
  static ComponentLoaders table = published_loaders();
  return table;
}

}  // namespace

void add_loaders(ComponentLoaders more) {
  loaders().text_encoders.merge(more.text_encoders);
  loaders().text_visions.merge(more.text_visions);
  loaders().image_encoders.merge(more.image_encoders);
  loaders().transformers.merge(more.transformers);
  loaders().vaes.merge(more.vaes);
  loaders().sound_vaes.merge(more.sound_vaes);
  loaders().colors.merge(more.colors);
}

std::optional<LatentPreview> latent_preview(const std::string& family, const ModelSpec& spec) {
  const auto found = loaders().colors.find(family);
  const LatentColors* colors = found == loaders().colors.end() ? nullptr : found->second(spec.latent_channels);
  return colors == nullptr ? std::nullopt : std::optional<LatentPreview>(std::in_place, *colors, spec.layout);
}

std::unique_ptr<TextEncoder> load_text_encoder(const Component& component, at::Device device, WeightFormat format,
                                               Residence residence) {
  return loaders().text_encoders.at(component.class_name)(component, device, format, residence);
}

std::unique_ptr<TextVision> load_text_vision(const Component& component, at::Device device, at::ScalarType dtype,
                                             const PatchConfig& patches) {
  const auto found = loaders().text_visions.find(component.class_name);
  if (found == loaders().text_visions.end())
    throw bad_option("image", "is given, but " + component.class_name + " does not look at pictures",
                     "leave it out, or use a model that takes images");
  return found->second(component, device, dtype, patches);
}

std::unique_ptr<ImageEncoder> load_image_encoder(const Component& component, at::Device device, at::ScalarType dtype) {
  return loaders().image_encoders.at(component.class_name)(component, device, dtype);
}

std::unique_ptr<LoadedTransformer> load_transformer(const Component& component, at::Device device, WeightFormat format,
                                                    const Streaming& streaming) {
  return loaders().transformers.at(component.class_name)(component, device, format, streaming);
}

namespace {

Component described(const Checkpoint& checkpoint, const std::string& role) {
  Component component;
  component.class_name = checkpoint.component_class(role);
  component.random_seed = 0;
  component.config = checkpoint.config(role, &component.config_file);
  return component;
}

/// Builds the transformer or encoder without loading its weights, and returns the result of calling `ask` with it.
auto asked(const Component& component, WeightFormat format, const auto& ask) {
  if (loaders().transformers.contains(component.class_name))
    return ask(*load_transformer(component, at::kMeta, format));
  if (loaders().image_encoders.contains(component.class_name))
    return ask(*load_image_encoder(component, at::kMeta, format.dtype));
  return ask(*load_text_encoder(component, at::kMeta, format));
}

/// Returns the number of weights that loading the component has counted.
uint64_t counted_elements(const Component& component) {
  uint64_t count = 0;
  for (const auto& [name, elements] : *component.counted) count += elements;
  return count;
}

uint64_t bytes_in(const Component& component, WeightFormat format) {
  return asked(component, format, [](const auto& module) { return module.weight_bytes(); });
}

}  // namespace

uint64_t weight_bytes(const Checkpoint& checkpoint, const std::string& role, WeightFormat format) {
  return bytes_in(checkpoint.component(role), format);
}

uint64_t likely_weight_bytes(const Checkpoint& checkpoint, const std::string& role, WeightFormat format) {
  try {
    return weight_bytes(checkpoint, role, format);
  } catch (const Error&) {
    return bytes_in(described(checkpoint, role), format);
  }
}

BlockWeights likely_block_weights(const Checkpoint& checkpoint, const std::string& role, WeightFormat format) {
  const auto read = [&](const Component& component) {
    const auto transformer = load_transformer(component, at::kMeta, format);
    const std::vector<uint64_t> blocks = transformer->block_bytes();
    const uint64_t all = std::accumulate(blocks.begin(), blocks.end(), uint64_t{0});
    return BlockWeights{.block = blocks.empty() ? 0 : std::ranges::max(blocks),
                        .rest = transformer->weight_bytes() - all};
  };
  try {
    return read(checkpoint.component(role));
  } catch (const Error&) {
    return read(described(checkpoint, role));
  }
}

bool rounds_again(const Checkpoint& checkpoint, const std::string& role, WeightFormat format) {
  return asked(checkpoint.component(role), format, [](const auto& module) { return module.rounds_again(); });
}

std::string left_out_warning(const Checkpoint& checkpoint, const std::string& role, WeightFormat format) {
  const auto left_out = std::make_shared<std::vector<std::string>>();
  try {
    Component component = checkpoint.component(role);
    component.left_out = left_out;
    if (loaders().vaes.contains(component.class_name))
      load_vae(component, at::kMeta, format.dtype);
    else if (loaders().sound_vaes.contains(component.class_name))
      load_sound_vae(component, at::kMeta);
    else
      bytes_in(component, format);
    if (left_out->empty()) return {};
    const std::string count = std::to_string(left_out->size());
    return component.origin.string() + ": " + count + (left_out->size() == 1 ? " tensor that " : " tensors that ") +
           component.class_name + (left_out->size() == 1 ? " does not have is" : " does not have are") +
           " left out: " + first_of(*left_out);
  } catch (const Error&) {  // loading reports the error
    return {};
  }
}

double weight_count(const Checkpoint& checkpoint, const std::string& role) {
  if (loaders().sound_vaes.contains(checkpoint.component_class(role))) {
    Component component = described(checkpoint, role);
    component.counted = std::make_shared<std::map<std::string, uint64_t>>();
    load_sound_vae(component, at::kMeta);
    return static_cast<double>(counted_elements(component));
  }
  return static_cast<double>(bytes_in(described(checkpoint, role), at::kFloat)) / sizeof(float);
}

bool has_fp8_layers(const Checkpoint& checkpoint, const std::string& role) {
  const Component component = described(checkpoint, role);
  return bytes_in(component, {at::kFloat, /*in_fp8=*/true}) < bytes_in(component, at::kFloat);
}

WorkBytes text_vision_bytes(const Checkpoint& checkpoint, at::ScalarType dtype, const PatchConfig& patches,
                            int64_t height, int64_t width) {
  try {
    const auto vision = load_text_vision(described(checkpoint, "text_encoder"), at::kMeta, dtype, patches);
    return {.weights = vision->weight_bytes(), .activations = vision->look_bytes(height, width)};
  } catch (const Error&) {  // checking the weights for images reports the error
    return {};
  }
}

uint64_t vae_weight_count(const Checkpoint& checkpoint) {
  Component component = described(checkpoint, "vae");
  component.counted = std::make_shared<std::map<std::string, uint64_t>>();
  try {
    load_vae(component, at::kMeta, at::kFloat, VaeParts::both);
  } catch (const Error&) {  // the encoder is not supported
    load_vae(component, at::kMeta, at::kFloat, VaeParts::decoder);
  }
  return counted_elements(component);
}

std::unique_ptr<Vae> describe_vae(const Checkpoint& checkpoint, at::ScalarType dtype, VaeParts parts) {
  return load_vae(described(checkpoint, "vae"), at::kMeta, dtype, parts);
}

std::unique_ptr<Vae> load_vae(const Component& component, at::Device device, at::ScalarType dtype, VaeParts parts) {
  auto vae = loaders().vaes.at(component.class_name)(component, device, dtype, parts);
  if (has_encoder(parts) && !vae->encodes())
    throw bad_input("the encoder of " + component.class_name + " is not supported", "leave the image out");
  return vae;
}

std::unique_ptr<SoundVae> load_sound_vae(const Component& component, at::Device device) {
  return loaders().sound_vaes.at(component.class_name)(component, device);
}

}  // namespace sparsereel::models
