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

/// The facts of a run that decide which options have an effect. An unset member is still unknown and causes nothing.
struct RunFacts {
  const Settings* settings = nullptr;  // names the sources of values in warnings
  const Request* request = nullptr;
  const ModelSpec* model = nullptr;
  std::optional<attention::Mode> attention_mode = {};
  bool is_by_head = false;  // the profile has a policy for each head
  bool on_cpu = false;      // the pipeline runs on a CPU
  /// results of Pipeline::why_idle_weights() and why_idle_text_weights()
  std::string narrow_blocks = {}, narrow_layers = {};
  bool has_random_seed = false;                   // the run draws its own seed
  std::string output = {};                        // the kind of output: ".gif", "PNGs"
  bool is_encoded = true, has_frame_rate = true;  // whether the output is encoded, and has a frame rate
};

struct IdleCause {
  Idle idle;
  std::string beside;  // key of the option to blame
  std::string why;     // "with attention full, which computes every block"; empty if the cause does not apply
};

/// The causes decided by the request, by the model, by the run (its mode and profile), and by the output.
inline constexpr std::array kDecidedByRequest = {Idle::no_guidance, Idle::no_lora, Idle::no_image, Idle::in_fp32,
                                                 Idle::on_a_cpu};
inline constexpr std::array kDecidedByModel = {Idle::one_transformer, Idle::no_flow, Idle::narrow_blocks,
                                               Idle::narrow_layers};
inline constexpr std::array kDecidedByRun = {Idle::every_block, Idle::exact,    Idle::profile,
                                             Idle::no_means,    Idle::no_reuse, Idle::random_seed};
inline constexpr std::array kDecidedByOutput = {Idle::not_encoded, Idle::no_frame_rate};

/// The reason, to follow "topk 0.5 has no effect"; empty if the cause does not apply.
std::string why_idle(Idle cause, const RunFacts& facts);
/// Returns only causes that apply.
std::vector<IdleCause> idle_causes(std::span<const Idle> causes, const RunFacts& facts);

/// Returns one warning for each option without effect, with the first cause that applies: "topk 0.3 has no effect with
/// attention full, which computes every block". Values that ask for nothing (a flag that is off, an empty text, --cache
/// 0) cause no warning. Nor do values of matched configs, recipes and profiles, which know no run, or those that a
/// stronger source overrides.
std::vector<std::string> idle_warnings(const Settings& settings, const std::vector<IdleCause>& causes);

/// Includes options that are not given.
std::set<std::string> idle_options(const OptionList& options, const std::vector<IdleCause>& causes);

/// "attention full or quantized, which compute every block"
std::vector<std::pair<Idle, std::string>> causes_in_the_manual();

}  // namespace sparsereel::models
