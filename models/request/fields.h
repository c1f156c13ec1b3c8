// The list of all fields that determine a video: how each is read, what it decides in a run, and what a recipe stores.
// The command line, YAML, rows of prompt sets, recipes, resume and the library use this list. A new option needs a
// member in Request and Plan, an entry in fields.cpp, and help in app/options. No torch.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/request/request.h"
#include "models/request/value_kind.h"

namespace sparsereel::models {

/// Says what a recipe stores of an option: nothing, its value, or the name and hash of its file.
enum class InRecipe { nothing, value, file };

/// Causes that leave an option without effect. The run goes on, with a warning.
enum class NoEffect {
  every_block,      // attention computes every block
  exact,            // the run is exact: attention is full, and no profile asked for it
  profile,          // the profile has a policy for each head
  no_means,         // nothing replaces dropped blocks, so there are no means
  no_guidance,      // guidance is off
  unguided_model,   // the model takes no guidance
  whole_prompt,     // the model takes all tokens of a prompt
  one_scheduler,    // only the checkpoint's scheduler fits the model
  one_frame_rate,   // the model makes videos of one frame rate
  own_fit,          // the model itself fixes how images are fitted to the video
  one_tile_size,    // the VAE works in tiles of one size
  one_vae_dtype,    // the VAE itself chooses its number formats
  one_transformer,  // the model has only one transformer
  narrow_blocks,    // no layer of the transformer's blocks has sizes that 8-bit weights need
  narrow_layers,    // no layer of the text encoder has sizes that 8-bit weights need
  no_flow,          // the sampler is not for flow matching
  no_reuse,         // the cache can reuse no step
  on_a_cpu,         // the run is on a CPU
  in_fp32,          // attention computes in fp32, on a CPU
  no_lora,          // no LoRA is given
  no_image,         // no image is given
  no_sound,         // the model makes no sound
  not_encoded,      // the output is not encoded
  no_frame_rate,    // the output has no frame rate
  random_seed,      // the seed is drawn anew for every run
};

struct Exclusion {
  std::string other;                         // name of the other option
  std::string value = {}, other_value = {};  // the values that exclude each other; empty for all values
};

/// An option, or one value of it.
struct Choice {
  std::string name;
  std::string value = {};  // empty for any value

  bool is(std::string_view other, std::string_view given) const {
    return name == other && (value.empty() || value == given);
  }
};

using ExclusiveChoices = std::vector<std::pair<Choice, Choice>>;
/// Returns the choices that cannot be combined with this value of the option.
std::vector<Choice> excluded_by(const ExclusiveChoices& all, std::string_view name, std::string_view value);

/// The values that a number may take, whatever the model. In a list, each number must fit.
struct Range {
  double least, most = std::numeric_limits<double>::infinity();
  bool above = false;  // `least` itself is not allowed
  std::string remedy = "give a positive number";
};

/// The part of a run that a field decides. Videos with equal `text` and `images` fields share their encoding; videos
/// with equal `pipeline` fields share loaded weights. `picture` fields affect only the video itself.
enum class RunPart { picture, text, images, pipeline };

struct Field {
  std::string name;  // the name in YAML, recipes and errors: "steps"
  ValueKind kind = ValueKind::text;
  RunPart decides = RunPart::picture;
  InRecipe recipe = InRecipe::value;
  /// For ValueKind::choice; empty if the choices depend on the model or the machine.
  std::vector<std::string> choices = {};
  std::optional<Range> range = {};
  std::vector<NoEffect> no_effect = {};  // causes that leave this option without effect
  std::string nothing = {};              // the value that requests nothing ("0" for no cache), so no warning is needed
  /// Choices that cannot be combined with this option. Each pair is listed once, by the first of the two options.
  std::vector<Exclusion> excludes = {};
  /// Reads the value into a request. Throws Error naming the field if the text does not fit its type.
  std::function<void(Request&, const std::string&)> read = {};
  /// Returns the member's value as a text that read() accepts; an empty text if the value is unset.
  std::function<std::string(const Request&)> text = {};
  /// Copies the field from another request, even if it is unset there.
  std::function<void(Request&, const Request& other)> copy = {};
  /// Returns the recipe's value; null if the field has no effect in this plan.
  std::function<nlohmann::json(const Plan&)> save = {};
  /// Copies the request's value into an attention policy. Null if make_policy() itself copies the value, or the policy
  /// has no such value.
  std::function<void(const Request&, attention::Policy&)> choose = {};
  /// Throws Error naming the field if a number is out of range. Null if the field has no range.
  std::function<void(const Request&)> check = {};
};

/// Returns the fields, in the order in which people read them.
const std::vector<Field>& fields();
/// Adds a field that another program defines. Call this before anything reads the list.
void add_field(Field field);
/// Finds a field by its name; returns nullptr if there is none.
const Field* find_field(std::string_view name);

/// Reads a request from texts by field name. Ignores names that are not fields.
Request read_request(const std::map<std::string, std::string>& values);

/// Throws Error naming the field whose number is out of range.
void check_ranges(const Request& request);

/// Returns true if one of the given values cannot be combined with this value of the option `name`.
bool is_excluded(const std::string& name, const std::string& value, const std::map<std::string, std::string>& given);
/// Throws Error naming two fields that exclude each other: "dropped none and error exclude each other".
void refuse_contradictions(const std::map<std::string, std::string>& given);

/// Returns the values that make the same video again, by field name.
nlohmann::json recipe_of(const Plan& plan);

/// Returns a key for the encoding of texts and images. Plans with the same key share the encoding.
std::string text_key(const Plan& plan);
/// Returns the key of the images alone.
std::string image_key(const Plan& plan);
/// Returns a key for the pipeline. Requests with the same key share a pipeline.
std::string pipeline_key(const Request& request);

}  // namespace sparsereel::models
