// Holds the list of fields. Do not change the values that a recipe stores, nor the types of its numbers: a later run
// compares recipes to recognize work that is already done.
#include "models/request/fields.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "models/request/field_types.h"

namespace sparsereel::models {
namespace {

using attention::Dropped, attention::drops_blocks;

template <typename Number>
requires std::is_arithmetic_v<Number>
void check_number(const Field& field, Number number) {
  const auto& [least, most, above, remedy] = *field.range;
  const auto value = static_cast<double>(number);
  if ((above ? value > least : value >= least) && value <= most) return;
  const std::string text = FieldType<Number>::text(number);
  if (std::isinf(most)) throw bad_option(field.name, text + " is below " + exact_text(least), remedy);
  throw bad_option(field.name,
                   text + " is not a number " + (above ? "above " : "from ") + exact_text(least) +
                       (above ? " and at most " : " to ") + exact_text(most),
                   remedy);
}
template <typename Number>
requires std::is_arithmetic_v<Number>
void check_number(const Field& field, const std::optional<Number>& value) {
  if (value) check_number(field, *value);
}
void check_number(const Field& field, const std::vector<double>& numbers) {
  for (const double number : numbers) check_number(field, number);
}

template <typename Value>
std::optional<Value> only(bool condition, Value value) {
  return condition ? std::optional(std::move(value)) : std::nullopt;
}

/// Returns `row` with its functions, which access `member` of a request. `plan_value` is a member of Plan, or a
/// function from a plan to the recipe's value.
template <typename Value, typename PlanValue>
Field field(Value Request::*member, const PlanValue& plan_value, Field row) {
  using Kind = FieldType<Value>;
  if (row.kind == ValueKind::text) row.kind = row.choices.empty() ? Kind::kind : ValueKind::choice;
  row.read = [member, name = row.name](Request& request, const std::string& text) {
    request.*member = Kind::read(name, text);
  };
  row.text = [member](const Request& request) { return Kind::text(request.*member); };
  row.copy = [member](Request& request, const Request& other) { request.*member = other.*member; };
  row.save = [plan_value](const Plan& plan) { return saved(std::invoke(plan_value, plan)); };
  if constexpr (requires(const Request& request) { check_number(row, request.*member); })
    if (row.range) row.check = [member, row](const Request& request) { check_number(row, request.*member); };
  return row;
}

/// Returns true if attention drops blocks and all heads choose blocks by the same policy, not each head by its own
/// policy from a profile.
bool shares_policy(const Plan& plan) {
  return drops_blocks(plan.attention_mode) && plan.attention_policy.per_head.empty();
}

/// Returns the field of one of the options that select blocks (topk, cdf, error, block_error). Any two of them exclude
/// each other; the first of the two lists the pair.
Field how_many_blocks(const attention::SelectionField& own) {
  Field row{.name = own.name, .no_effect = {NoEffect::every_block}};
  for (const auto& each : attention::kSelections)
    if (each.selection > own.selection) row.excludes.push_back({.other = each.name});
  const auto of_plan = [own](const Plan& plan) {
    const attention::HeadPolicy& head = plan.attention_policy.defaults;
    return only(shares_policy(plan) && head.selection == own.selection, head.*own.value);
  };
  return field(kSelectionFields[static_cast<size_t>(own.selection)], of_plan, std::move(row));
}

/// Returns a function for Field::choose. It copies the request's value; if the request has none, the policy keeps its
/// default.
template <typename Owner, typename Value>
auto chosen(std::optional<Value> Request::*asked, Value Owner::*member) {
  return [asked, member](const Request& request, attention::Policy& policy) {
    policy.*member = (request.*asked).value_or(policy.*member);
  };
}

/// Returns the field of a value that all heads share. If the request has no value, the policy keeps its default.
template <typename Value>
Field head_field(std::optional<Value> Request::*asked, Value attention::HeadPolicy::*member, Field row) {
  const auto of_plan = [member](const Plan& plan) {
    return only(shares_policy(plan), plan.attention_policy.defaults.*member);
  };
  row.choose = [asked, member](const Request& request, attention::Policy& policy) {
    policy.defaults.*member = (request.*asked).value_or(policy.defaults.*member);
  };
  return field(asked, of_plan, std::move(row));
}

template <typename Policy, typename Value>
auto of_dropping(Value Policy::*member) {
  return [member](const Plan& plan) { return only(drops_blocks(plan.attention_mode), plan.attention_policy.*member); };
}

template <typename Value>
auto of_guidance(Value Plan::*member) {
  return [member](const Plan& plan) { return only(plan.is_guided(), plan.*member); };
}

std::vector<Field> texts() {
  return {field(&Request::prompt, &Plan::prompt, {.name = "prompt", .decides = RunPart::text}),
          field(&Request::negative_prompt, of_guidance(&Plan::negative_prompt),
                {.name = "negative_prompt",
                 .decides = RunPart::text,
                 .no_effect = {NoEffect::unguided_model, NoEffect::no_guidance}}),
          field(&Request::max_sequence_length, &Plan::max_sequence_length,
                {.name = "max_sequence_length",
                 .decides = RunPart::text,
                 .range = Range{1},
                 .no_effect = {NoEffect::whole_prompt}})};
}

std::vector<Field> size() {
  const Range seconds = {.least = 0, .most = 86400, .above = true, .remedy = "give the length of the video, such as 4"};
  return {field(&Request::width, &Plan::width, {.name = "width"}),
          field(&Request::height, &Plan::height, {.name = "height"}),
          // Recipes store the resulting width and height.
          field(&Request::size, [](const Plan&) { return nlohmann::json(); },
                {.name = "size", .recipe = InRecipe::nothing, .excludes = {{.other = "width"}, {.other = "height"}}}),
          field(&Request::num_frames, &Plan::num_frames, {.name = "frames"}),
          field(&Request::seconds, [](const Plan&) { return nlohmann::json(); },  // recipes store the frames
                {.name = "seconds", .recipe = InRecipe::nothing, .range = seconds, .excludes = {{.other = "frames"}}})};
}

std::vector<Field> images() {
  const auto name_of = [](std::string Plan::*file) {
    return [file](const Plan& plan) {
      const std::string name = std::filesystem::path(plan.*file).filename().string();
      return only(!name.empty() && plan.*file != kMadeUpImage, name);
    };
  };
  const auto picture = [&](const char* name, std::string Request::*member, std::string Plan::*file) {
    return field(member, name_of(file),
                 {.name = name, .kind = ValueKind::file, .decides = RunPart::images, .recipe = InRecipe::file});
  };
  return {picture("image", &Request::image, &Plan::image),
          picture("last_image", &Request::last_image, &Plan::last_image),
          field(&Request::resize,
                [](const Plan& plan) {
                  return only(plan.has_images() && plan.resize, plan.resize.value_or(ResizeRule::cover));
                },
                {.name = "resize",
                 .decides = RunPart::images,
                 .choices = {"cover", "stretch"},
                 .no_effect = {NoEffect::no_image, NoEffect::own_fit}})};
}

std::vector<Field> sampling() {
  // The largest value is far above useful ones; beyond it, the latents overflow.
  const Range scale = {.least = 0, .most = 1000, .remedy = "use 1 for no guidance; a usual value is 6"};
  const Range shift = {
      .least = 0, .most = 1e9, .above = true, .remedy = "use 3 to 12; larger ones spend more steps on noisy latents"};
  const Range sigma = {.least = 0,
                       .most = 1,
                       .above = true,
                       .remedy = "give falling numbers above 0 and at most 1, such as 1,0.75,0.5,0.25"};
  return {
      field(&Request::seed, &Plan::seed, {.name = "seed"}),
      field(&Request::num_inference_steps, [](const Plan& plan) { return only(plan.sigmas.empty(), plan.asked_steps); },
            {.name = "steps", .range = Range{1}}),
      field(&Request::guidance_scale, &Plan::guidance_scale,
            {.name = "cfg_scale", .range = scale, .no_effect = {NoEffect::unguided_model}}),
      field(&Request::guidance_scale_2,
            [](const Plan& plan) { return plan.is_guided() ? plan.guidance_scale_2 : std::nullopt; },
            {.name = "cfg_scale_2",
             .range = scale,
             .no_effect = {NoEffect::unguided_model, NoEffect::one_transformer, NoEffect::no_guidance}}),
      field(&Request::guidance_passes,
            [](const Plan& plan) {  // the default is left out
              return only(plan.is_guided() && plan.guidance_passes != GuidancePasses::batched, plan.guidance_passes);
            },
            {.name = "guidance_passes",
             .choices = {"batched", "in-turn"},
             .no_effect = {NoEffect::unguided_model, NoEffect::no_guidance}}),
      field(&Request::use_dynamic_cfg, of_guidance(&Plan::use_dynamic_cfg),
            {.name = "dynamic_cfg", .no_effect = {NoEffect::unguided_model, NoEffect::no_guidance}}),
      field(&Request::scheduler, &Plan::scheduler,
            {.name = "scheduler", .kind = ValueKind::choice, .no_effect = {NoEffect::one_scheduler}}),
      field(&Request::flow_shift, &Plan::flow_shift,
            {.name = "flow_shift", .range = shift, .no_effect = {NoEffect::no_flow}}),
      field(&Request::sigmas,
            [](const Plan& plan) {
              const std::string list = nlohmann::json(plan.sigmas).dump();
              return only(!plan.sigmas.empty(), list.substr(1, list.size() - 2));
            },
            {.name = "sigmas", .range = sigma, .no_effect = {NoEffect::no_flow}, .excludes = {{.other = "steps"}}}),
      field(&Request::cache, [](const Plan& plan) { return only(plan.cache.on(), name(plan.cache)); },
            {.name = "cache", .no_effect = {NoEffect::no_reuse}, .nothing = "0"})};
}

std::vector<Field> selection() {
  using Head = attention::HeadPolicy;
  using attention::Policy;
  const std::vector<NoEffect> no_effect = {NoEffect::every_block, NoEffect::profile};
  std::vector<Field> all;
  std::ranges::transform(attention::kSelections, std::back_inserter(all), how_many_blocks);
  const std::vector<Field> others = {
      field(&Request::dropped, of_dropping(&Policy::dropped),
            {.name = "dropped",
             .choices = {"mean", "none"},
             .no_effect = no_effect,
             .excludes = {{.other = "select", .value = "none", .other_value = "error"},
                          {.other = "error", .value = "none"},
                          {.other = "block_error", .value = "none"}}}),
      field(&Request::ranking, of_dropping(&Policy::ranking),
            {.name = "select",
             .choices = {"error", "mass"},
             .no_effect = no_effect,
             .excludes = {{.other = "error", .value = "mass"}, {.other = "block_error", .value = "mass"}}}),
      field(&Request::cell,
            [](const Plan& plan) {
              const Policy& policy = plan.attention_policy;
              return only(drops_blocks(plan.attention_mode) && policy.dropped == Dropped::mean, policy.cell);
            },
            {.name = "cell",
             .choices = {"16", "32", "64"},
             .no_effect = {NoEffect::every_block, NoEffect::profile, NoEffect::no_means},
             .choose = chosen(&Request::cell, &Policy::cell)}),
      field(&Request::arithmetic,
            [](const Plan& plan) {  // the default of 8 bits is left out
              const bool asked = drops_blocks(plan.attention_mode) && plan.device != "cpu";
              return only(asked && plan.attention_policy.arithmetic == 16, plan.attention_policy.arithmetic);
            },
            {.name = "arithmetic",
             .choices = {"8", "16"},
             .no_effect = {NoEffect::every_block, NoEffect::in_fp32},
             .nothing = "8",
             .excludes = {{.other = "attention", .value = "16", .other_value = "quantized"}},
             .choose = chosen(&Request::arithmetic, &Policy::arithmetic)}),
      head_field(&Request::similarity, &Head::similarity, {.name = "similarity", .no_effect = no_effect}),
      head_field(&Request::pv_threshold, &Head::pv_threshold, {.name = "pv_threshold", .no_effect = no_effect}),
      field(&Request::dense_steps, of_dropping(&Policy::dense_steps),
            {.name = "dense_steps", .no_effect = {NoEffect::every_block}}),
      field(&Request::exact_steps,
            [](const Plan& plan) {  // the default of 0 is left out
              return only(plan.attention_mode != attention::Mode::full && plan.exact_steps > 0, plan.exact_steps);
            },
            {.name = "exact_steps", .no_effect = {NoEffect::exact}, .nothing = "0"}),
      field(&Request::dense_layers, of_dropping(&Policy::dense_layers),
            {.name = "dense_layers",
             .no_effect = {NoEffect::every_block},
             .choose = chosen(&Request::dense_layers, &Policy::dense_layers)})};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

/// Returns the field of the file that replaces one role's weights, or the tokenizer.
Field weights_file(const std::string& role) {
  const auto of = [role](const std::map<std::string, std::string>& files) {
    const auto found = files.find(role);
    return found == files.end() ? std::string() : found->second;
  };
  return {.name = role,
          .kind = ValueKind::file,
          .recipe = InRecipe::file,
          .read = [role](Request& request, const std::string& text) { request.files[role] = text; },
          .text = [of](const Request& request) { return of(request.files); },
          .copy = [role, of](Request& request, const Request& other) { request.files[role] = of(other.files); },
          .save =
              [of](const Plan& plan) {
                const std::string file = std::filesystem::path(of(plan.files)).filename().string();
                return saved(only(!file.empty(), file));
              }};
}

std::vector<Field> pipeline() {
  const auto unless_auto = [](std::string Plan::*member) {
    return [member](const Plan& plan) { return only(plan.*member != "auto", plan.*member); };
  };
  const std::vector<std::string> dtypes = {"auto", "fp32", "bf16", "fp16"};
  std::vector<Field> all = {
      field(&Request::device, &Plan::device, {.name = "device", .choices = {"auto", "cpu", "cuda", "cuda:N"}}),
      field(&Request::dtype, &Plan::dtype, {.name = "dtype", .choices = dtypes}),
      field(&Request::vae_dtype,
            [](const Plan& plan) {
              const bool of_images = plan.has_images() && plan.encodes_in_vae_dtype;
              return only(plan.vae_dtype != plan.dtype || of_images, plan.vae_dtype);
            },
            {.name = "vae_dtype", .choices = dtypes, .no_effect = {NoEffect::one_vae_dtype}, .nothing = "auto"}),
      field(&Request::weights, unless_auto(&Plan::weights),
            {.name = "weights", .choices = {"auto", "fp8", "int8"}, .no_effect = {NoEffect::narrow_blocks}}),
      field(&Request::text_weights, unless_auto(&Plan::text_weights),
            {.name = "text_weights", .choices = {"auto", "fp8", "int8"}, .no_effect = {NoEffect::narrow_layers}}),
      field(&Request::offload, [](const Plan&) { return nlohmann::json(); },
            {.name = "offload",
             .recipe = InRecipe::nothing,
             .choices = {"auto", "on", "off"},
             .no_effect = {NoEffect::on_a_cpu},
             .nothing = "auto"}),
      field(&Request::max_vram, [](const Plan&) { return nlohmann::json(); },
            {.name = "max_vram",
             .recipe = InRecipe::nothing,
             .range =
                 Range{.least = 0, .most = 1e6, .above = true, .remedy = "give the GiB of the GPU to use, such as 12"},
             .no_effect = {NoEffect::on_a_cpu}}),
      weights_file("transformer"),
      weights_file("transformer_2"),
      weights_file("vae"),
      weights_file("text_encoder"),
      weights_file("image_encoder"),
      weights_file("tokenizer"),
      field(&Request::loras,
            [](const Plan& plan) { return only(!plan.loras.empty(), text_of(plan.loras, /*whole_paths=*/false)); },
            {.name = "lora", .recipe = InRecipe::file}),
      field(&Request::strict_lora, [](const Plan&) { return nlohmann::json(); },
            {.name = "strict_lora", .recipe = InRecipe::nothing, .no_effect = {NoEffect::no_lora}})};
  for (Field& each : all) each.decides = RunPart::pipeline;
  return all;
}

std::vector<Field> all_fields() {
  std::vector<Field> all;
  for (std::vector<Field> group : {texts(), size(), images(), sampling(), selection(), pipeline()})
    std::ranges::move(group, std::back_inserter(all));
  all.push_back(field(&Request::attention_mode, &Plan::attention_mode,
                      {.name = "attention", .choices = {"full", "quantized", "sparse", "check"}}));
  all.push_back(field(&Request::token_order, &Plan::token_order,
                      {.name = "token_order", .choices = {"hilbert", "native", "time-major", "morton", "random"}}));
  all.push_back(field(&Request::vae_tiling, &Plan::vae_tiling,
                      {.name = "vae_tiling",
                       .choices = {"auto", "on", "off"},
                       .no_effect = {NoEffect::one_tile_size},
                       .nothing = "auto"}));
  all.push_back(field(&Request::no_audio,
                      [](const Plan& plan) { return only(plan.no_audio, true); },  // the default is left out
                      {.name = "no_audio", .no_effect = {NoEffect::no_sound}}));
  return all;
}

std::vector<Field>& list() {
  static std::vector<Field> all = all_fields();
  return all;
}

}  // namespace

const std::vector<Field>& fields() {
  return list();
}

void add_field(Field field) {
  list().push_back(std::move(field));
}

const Field* find_field(std::string_view name) {
  const auto found = std::ranges::find(fields(), name, &Field::name);
  return found == fields().end() ? nullptr : &*found;
}

Request read_request(const std::map<std::string, std::string>& values) {
  Request request;
  for (const Field& field : fields())
    if (const auto value = values.find(field.name); value != values.end()) field.read(request, value->second);
  return request;
}

std::vector<Choice> excluded_by(const ExclusiveChoices& all, std::string_view name, std::string_view value) {
  std::vector<Choice> excluded;
  for (const auto& [first, second] : all) {
    if (first.is(name, value)) excluded.push_back(second);
    if (second.is(name, value)) excluded.push_back(first);
  }
  return excluded;
}

namespace {

ExclusiveChoices exclusive_fields() {
  ExclusiveChoices all;
  for (const Field& field : fields())
    for (const Exclusion& each : field.excludes)
      all.push_back({{field.name, each.value}, {each.other, each.other_value}});
  return all;
}

bool is_in(const Choice& choice, const std::map<std::string, std::string>& given) {
  const auto found = given.find(choice.name);
  return found != given.end() && choice.is(choice.name, found->second);
}

std::string text_of(const Choice& choice) {
  return choice.name + (choice.value.empty() ? "" : " " + choice.value);
}

}  // namespace

bool is_excluded(const std::string& name, const std::string& value, const std::map<std::string, std::string>& given) {
  return std::ranges::any_of(excluded_by(exclusive_fields(), name, value),
                             [&](const Choice& other) { return is_in(other, given); });
}

void refuse_contradictions(const std::map<std::string, std::string>& given) {
  for (const auto& [first, second] : exclusive_fields())
    if (is_in(first, given) && is_in(second, given))
      throw bad_input(text_of(first) + " and " + text_of(second) + " exclude each other", "give one of them");
}

void check_ranges(const Request& request) {
  for (const Field& field : fields())
    if (field.check) field.check(request);
}

nlohmann::json recipe_of(const Plan& plan) {
  nlohmann::json recipe = nlohmann::json::object();
  for (const Field& field : fields())
    if (nlohmann::json value = field.save(plan); !value.is_null()) recipe[field.name] = std::move(value);
  return recipe;
}

std::string text_key(const Plan& plan) {
  nlohmann::json key;
  for (const Field& field : fields())
    if (field.decides == RunPart::text) key.push_back(field.save(plan));
  return key.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + image_key(plan);
}

// The key contains the size, because images are encoded for one size. It also contains the whole paths, which are added
// outside of the JSON because a path need not be UTF-8.
std::string image_key(const Plan& plan) {
  if (!plan.has_images()) return {};
  const nlohmann::json how = {plan.resize ? name(*plan.resize) : "", plan.width, plan.height, plan.num_frames};
  return how.dump() + plan.image + '\0' + plan.last_image;
}

std::string pipeline_key(const Request& request) {
  std::string key;  // not JSON, because a path need not be UTF-8
  for (const Field& field : fields())
    if (field.decides == RunPart::pipeline) key.append(field.text(request)).push_back('\0');
  return key;
}

}  // namespace sparsereel::models
