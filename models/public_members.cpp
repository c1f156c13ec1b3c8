// Converts the members to texts, as a command line would give them.
#include "models/public_members.h"

#include <algorithm>
#include <utility>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "models/request/fields.h"

namespace sparsereel::models {
namespace {

/// Each overload of add() stores a member as the text that a command line would give. It leaves out unset and empty
/// members.
void add(MemberTexts& texts, const char* name, const std::string& value) {
  if (!value.empty()) texts[name] = value;
}
void add(MemberTexts& texts, const char* name, uint64_t value) {
  texts[name] = std::to_string(value);
}
void add(MemberTexts& texts, const char* name, const std::vector<double>& numbers) {
  if (!numbers.empty()) texts[name].clear();
  for (const double number : numbers) texts[name] += (texts[name].empty() ? "" : ",") + exact_text(number);
}
void add(MemberTexts& texts, const char* name, const std::optional<std::string>& value) {
  if (value) texts[name] = *value;
}
void add(MemberTexts& texts, const char* name, const std::optional<bool>& value) {
  if (value) texts[name] = *value ? "true" : "false";
}
void add(MemberTexts& texts, const char* name, const std::optional<int64_t>& value) {
  if (value) texts[name] = std::to_string(*value);
}
void add(MemberTexts& texts, const char* name, const std::optional<double>& value) {
  if (value) texts[name] = exact_text(*value);
}

/// Adds options given by name. Throws Error for an option that names a file, belongs to ModelOptions, or is also set as
/// a member.
void add_options(MemberTexts& texts, const MemberTexts& options) {
  for (const auto& [given, value] : options) {
    std::string name = given;
    std::replace(name.begin(), name.end(), '-', '_');
    const Field* field = find_field(name);
    if (field != nullptr && (field->decides == RunPart::pipeline || field->kind == ValueKind::file))
      throw bad_option(name, "cannot be given by name", "give it in ModelOptions, or as a member");
    if (!texts.emplace(name, value).second)
      throw bad_option(name, "is given twice", "give it as a member or in options");
  }
}

}  // namespace

MemberTexts texts_of(const VideoRequest& request) {
  MemberTexts texts;
  add(texts, "prompt", request.prompt);
  add(texts, "negative_prompt", request.negative_prompt);
  add(texts, "seed", request.seed);
  add(texts, "steps", request.steps);
  add(texts, "width", request.width);
  add(texts, "height", request.height);
  add(texts, "size", request.size);
  add(texts, "frames", request.frames);
  add(texts, "seconds", request.seconds);
  add(texts, "resize", request.resize);
  add(texts, "max_sequence_length", request.max_sequence_length);
  add(texts, "cfg_scale", request.cfg_scale);
  add(texts, "cfg_scale_2", request.cfg_scale_2);
  add(texts, "guidance_passes", request.guidance_passes);
  add(texts, "dynamic_cfg", request.dynamic_cfg);
  add(texts, "scheduler", request.scheduler);
  add(texts, "flow_shift", request.flow_shift);
  add(texts, "sigmas", request.sigmas);
  add(texts, "attention", request.attention);
  add(texts, "topk", request.topk);
  add(texts, "cdf", request.cdf);
  add(texts, "error", request.error);
  add(texts, "block_error", request.block_error);
  add(texts, "similarity", request.similarity);
  add(texts, "pv_threshold", request.pv_threshold);
  add(texts, "dropped", request.dropped);
  add(texts, "select", request.select);
  add(texts, "cell", request.cell);
  add(texts, "arithmetic", request.arithmetic);
  add(texts, "dense_steps", request.dense_steps);
  add(texts, "exact_steps", request.exact_steps);
  add(texts, "dense_layers", request.dense_layers);
  add(texts, "token_order", request.token_order);
  add(texts, "cache", request.cache);
  add(texts, "vae_tiling", request.vae_tiling);
  add(texts, "no_audio", request.no_audio);
  add(texts, "preset", request.preset);
  add(texts, "distilled", request.distilled);
  add(texts, "profile", request.profile);
  add_options(texts, request.options);
  return texts;
}

MemberTexts texts_of(const ModelOptions& options) {
  MemberTexts texts;
  add(texts, "device", options.device);
  add(texts, "dtype", options.dtype);
  add(texts, "weights", options.weights);
  add(texts, "text_weights", options.text_weights);
  add(texts, "offload", options.offload);
  add(texts, "max_vram", options.max_vram);
  add(texts, "transformer", options.transformer);
  add(texts, "transformer_2", options.transformer_2);
  add(texts, "vae", options.vae);
  add(texts, "text_encoder", options.text_encoder);
  add(texts, "image_encoder", options.image_encoder);
  add(texts, "tokenizer", options.tokenizer);
  add(texts, "lora", options.lora);
  return texts;
}

const OptionList& member_options() {
  static const OptionList list = [] {
    std::vector<Option> all;
    for (const Field& field : fields()) all.push_back(option_of(field));
    all.push_back({.key = "preset"});
    all.push_back({.key = "distilled", .kind = ValueKind::whole});
    all.push_back({.key = "profile", .kind = ValueKind::file, .no_effect = {NoEffect::exact}});
    all.push_back({.key = "fps", .kind = ValueKind::number});
    // `check` does nothing: the compiler checks the types of members, and values from files are checked when they are
    // read.
    return OptionList(std::move(all), {.name = [](const std::string& key) { return key; },
                                       .check = [](const auto&...) {},
                                       .unknown = [](const auto&...) { return "leave it out"; }});
  }();
  return list;
}

void keep_members(ModelConfig& config) {
  const auto is_none = [](const auto& each) {
    const Field* field = find_field(each.first);
    return member_options().find(each.first) == nullptr || (field != nullptr && field->decides == RunPart::pipeline);
  };
  std::erase_if(config.defaults, is_none);
  for (auto* presets : {&config.presets, &config.few_steps})
    for (auto& [name, preset] : *presets) std::erase_if(preset.values, is_none);
  for (Distilled& row : config.distilled) std::erase_if(row.options.values, is_none);
}

}  // namespace sparsereel::models
