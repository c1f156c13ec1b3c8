// Options that can have no effect in a run: it goes on, with a warning for each. One table says when. No torch.
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

/// The facts of a run that decide which options have an effect. An unset member is not known yet, and is no cause.
struct RunFacts {
  const Settings* settings = nullptr;  // warnings name its choices
  const Request* request = nullptr;
  const ModelSpec* model = nullptr;
  std::optional<attention::Mode> attention_mode = {};
  bool is_by_head = false;                             // a profile has a policy for each head
  bool on_cpu = false;                                 // the pipeline
  std::string narrow_blocks = {}, narrow_layers = {};  // Pipeline::why_idle_weights(), why_idle_text_weights()
  bool has_random_seed = false;                        // the run draws it
  std::string output = {};                             // ".gif", "PNGs": what is written
  bool is_encoded = true, has_frame_rate = true;       // of the output
};

struct IdleCause {
  Idle idle;
  std::string beside;  // key of the option to blame
  std::string why;     // "with attention full, which computes every block"; empty: it is none
};

/// The causes that each of these decides: the request, the model, the run (its mode and profile), and the output.
inline constexpr std::array kDecidedByRequest = {Idle::no_guidance, Idle::no_lora, Idle::no_image, Idle::in_fp32,
                                                 Idle::on_a_cpu};
inline constexpr std::array kDecidedByModel = {Idle::one_transformer, Idle::no_flow, Idle::narrow_blocks,
                                               Idle::narrow_layers};
inline constexpr std::array kDecidedByRun = {Idle::every_block, Idle::exact,    Idle::profile,
                                             Idle::no_means,    Idle::no_reuse, Idle::random_seed};
inline constexpr std::array kDecidedByOutput = {Idle::not_encoded, Idle::no_frame_rate};

/// Why options have no effect by this cause, to follow "topk 0.5 has no effect"; empty where it is none.
std::string why_idle(Idle cause, const RunFacts& facts);
/// The same of several, those left out that are none.
std::vector<IdleCause> idle_causes(std::span<const Idle> causes, const RunFacts& facts);

/// "topk 0.3 has no effect with attention full, which computes every block": one an option, by the first cause that
/// it has. Silent about what asks for nothing (a flag that is off, an empty text, --cache 0), about configs that fit a
/// model and recipes, which know no run, and where the option to blame comes from a stronger source: that is a choice.
std::vector<std::string> idle_warnings(const Settings& settings, const std::vector<IdleCause>& causes);

/// Keys of the options that the causes leave without effect, given or not.
std::set<std::string> idle_options(const OptionList& options, const std::vector<IdleCause>& causes);

/// Every cause in the manual's words: "attention full or quantized, which compute every block".
std::vector<std::pair<Idle, std::string>> causes_in_the_manual();

}  // namespace sparsereel::models
