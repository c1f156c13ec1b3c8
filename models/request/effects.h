// Finds options that can have no effect in a run; each causes a warning. One table lists the causes. No torch.
#pragma once

#include <array>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/policies/policy.h"
#include "models/request/request.h"
#include "models/request/settings.h"
#include "models/request/spec.h"

namespace sparsereel::models {

/// The facts of a run that decide which options have an effect. An unset member is not yet known and causes no warning.
struct RunFacts {
  const Settings* settings = nullptr;  // names the sources of values in warnings
  const Request* request = nullptr;
  const ModelSpec* model = nullptr;
  std::optional<attention::Mode> attention_mode = {};
  bool is_by_head = false;  // the profile has a policy for each head
  bool on_cpu = false;      // the pipeline runs on a CPU
  /// Results of Pipeline::why_weights_have_no_effect() and why_text_weights_have_no_effect().
  std::string narrow_blocks = {}, narrow_layers = {};
  bool has_random_seed = false;                   // the run draws its own seed
  std::string output = {};                        // the kind of output: ".gif", "PNGs"
  bool is_encoded = true, has_frame_rate = true;  // the output is an encoded video; it has a frame rate
};

struct NoEffectCause {
  NoEffect no_effect;
  std::string beside;  // key of the option that is the cause, for example "attention"
  std::string why;     // "with attention full, which computes every block"; empty if the cause does not apply
};

/// The causes, grouped by what decides them: the request, the model, the run (its mode and profile), or the output.
inline constexpr std::array kDecidedByRequest = {NoEffect::no_guidance, NoEffect::no_lora, NoEffect::no_image,
                                                 NoEffect::in_fp32, NoEffect::on_a_cpu};
inline constexpr std::array kDecidedByModel = {
    NoEffect::unguided_model, NoEffect::whole_prompt,  NoEffect::one_scheduler,   NoEffect::one_frame_rate,
    NoEffect::one_tile_size,  NoEffect::one_vae_dtype, NoEffect::one_transformer, NoEffect::no_flow,
    NoEffect::narrow_blocks,  NoEffect::narrow_layers, NoEffect::own_fit,         NoEffect::no_sound};
inline constexpr std::array kDecidedByRun = {NoEffect::every_block, NoEffect::exact,    NoEffect::profile,
                                             NoEffect::no_means,    NoEffect::no_reuse, NoEffect::random_seed};
inline constexpr std::array kDecidedByOutput = {NoEffect::not_encoded, NoEffect::no_frame_rate};

/// Returns true if a run in this mode is exact: its attention is full, and it is not a profile that asked for full
/// attention. In an exact run, a profile has no effect.
bool is_exact(const Settings& settings, attention::Mode mode);

/// Returns the end of the sentence "topk 0.5 has no effect ..."; empty if the cause does not apply.
std::string why_no_effect(NoEffect cause, const RunFacts& facts);
/// Returns those of `causes` that apply.
std::vector<NoEffectCause> no_effect_causes(std::span<const NoEffect> causes, const RunFacts& facts);

/// Returns one warning for each option without effect, with the first cause that applies: "topk 0.3 has no effect with
/// attention full, which computes every block". Values that request nothing (a flag that is off, an empty text, --cache
/// 0) cause no warning. Values of matched configs, recipes and profiles cause none, because nobody chose them for this
/// run. Values that a stronger source overrides cause none either.
std::vector<std::string> no_effect_warnings(const Settings& settings, const std::vector<NoEffectCause>& causes);

/// Returns the keys of options without effect, including options that are not given.
std::set<std::string> options_without_effect(const OptionList& options, const std::vector<NoEffectCause>& causes);

/// Returns each cause in the words of the manual: "attention full or quantized, which compute every block".
std::vector<std::pair<NoEffect, std::string>> causes_in_the_manual();

}  // namespace sparsereel::models
