// The one list of what makes a video's picture: how each field is read, what of a run it decides, and what a recipe
// says of it. Command line, YAML, rows of prompt sets, recipes, resume and the library walk it. A new option is a
// member of Request and of Plan and a row here, and help for it in app/options. No torch.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/request/plan.h"
#include "models/request/request.h"
#include "models/request/value_kind.h"

namespace sparsereel::models {

/// What a recipe has of an option: nothing, its value, or name and hash of its file.
enum class InRecipe { nothing, value, file };

/// What leaves an option without effect: the run goes on, with a warning.
enum class Idle {
  every_block,      // attention computes all
  exact,            // is what was asked for
  profile,          // has a policy for each head
  no_means,         // stand for dropped blocks
  no_guidance,      // is asked for
  one_transformer,  // is all that the model has
  narrow_blocks,    // has the transformer
  narrow_layers,    // has the text encoder
  no_flow,          // matching is what the sampler does
  no_reuse,         // is possible
  on_a_cpu,         // it runs
  in_fp32,          // attention computes, on a CPU
  no_lora,          // is given
  no_image,         // is given
  not_encoded,      // the output
  no_frame_rate,    // has the output
  random_seed,      // the next run takes another
};

/// Another choice that cannot be made beside an option.
struct Exclusion {
  std::string other;                         // its name
  std::string value = {}, other_value = {};  // which values exclude each other; empty: all
};

/// An option, or one value of it.
struct Choice {
  std::string name;
  std::string value = {};  // empty: any

  bool is(std::string_view other, std::string_view given) const {
    return name == other && (value.empty() || value == given);
  }
};

/// Pairs of which only one can be made.
using ExclusiveChoices = std::vector<std::pair<Choice, Choice>>;
/// What cannot be chosen beside this one.
std::vector<Choice> excluded_by(const ExclusiveChoices& all, std::string_view name, std::string_view value);

/// What a number may be, whatever the model; each of several.
struct Range {
  double least, most = std::numeric_limits<double>::infinity();
  bool above = false;  // it is more than the least
  std::string remedy = "give a positive number";
};

/// What of a run a field decides. Videos with the same text and images share their encoding, and those with the same
/// pipeline the loaded weights.
enum class Decides { picture, text, images, pipeline };

struct Field {
  std::string name;  // "steps": as YAML, recipes and errors call it
  ValueKind kind = ValueKind::text;
  Decides decides = Decides::picture;
  InRecipe recipe = InRecipe::value;
  std::vector<std::string> choices = {};  // of ValueKind::choice; empty: the model's or the machine's
  std::optional<Range> range = {};
  std::vector<Idle> idle = {};           // what leaves it without effect
  std::string nothing = {};              // the value that asks for nothing: beside it no effect is missed
  std::vector<Exclusion> excludes = {};  // it and the others exclude each other: said once, of the first of two
  /// Throws Error naming the field where the text is none of its kind, or none of the choices of a type of its own.
  std::function<void(Request&, const std::string&)> read = {};
  /// What read() makes the same of; empty where it is unset, too.
  std::function<std::string(const Request&)> text = {};
  /// Takes the value of another request, or that it is unset there.
  std::function<void(Request&, const Request& other)> copy = {};
  /// What a recipe says of it; null where it has no effect.
  std::function<nlohmann::json(const Plan&)> save = {};
  /// Takes what the request asks for into its attention policy. Null: make_policy() knows how, or it is no part of it.
  std::function<void(const Request&, attention::Policy&)> choose = {};
  /// Throws Error naming the field where a number is out of its range. Null: it has none.
  std::function<void(const Request&)> check = {};
};

/// Every field, in the order in which people read them.
const std::vector<Field>& fields();
/// Of a program that has more options: to be called before anything reads the list.
void add_field(Field field);
/// nullptr where there is none.
const Field* find_field(std::string_view name);

/// Values as texts, by their fields' names -> what is asked for. Names of no field are passed over.
Request read_request(const std::map<std::string, std::string>& values);

/// Throws Error naming a field that is out of its range.
void check_ranges(const Request& request);

/// Whether `name` cannot have this value beside the others.
bool is_excluded(const std::string& name, const std::string& value, const std::map<std::string, std::string>& given);
/// Throws Error naming two fields that exclude each other: "dropped none and error exclude each other".
void refuse_contradictions(const std::map<std::string, std::string>& given);

/// What makes the same video again, by the fields' names.
nlohmann::json recipe_of(const Plan& plan);

/// Two plans, or requests, with the same key share the encoding of their texts, or the pipeline.
std::string text_key(const Plan& plan);
/// The same of their images alone.
std::string image_key(const Plan& plan);
std::string pipeline_key(const Request& request);

}  // namespace sparsereel::models
