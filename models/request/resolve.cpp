// Reads settings, adds profiles, computes sizes, steps and samplers, and refuses values that are impossible for a
// model.
#include "models/request/resolve.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iomanip>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "models/files/config_fields.h"
#include "models/files/regular_file.h"
#include "models/files/unicode.h"
#include "models/request/asked_policy.h"
#include "models/request/fields.h"
#include "models/request/frame_count.h"
#include "models/request/image_size.h"
#include "models/request/sampling.h"
#include "models/samplers/make_sampler.h"

namespace sparsereel::models {
namespace {

/// Returns true if a source stronger than the profile selects blocks for all heads (topk, cdf, error or block_error).
bool chooses_blocks(const Settings& settings) {
  return std::ranges::any_of(kSelectionNames, [&](const char* key) {
    const Setting* setting = settings.find(key);
    return setting != nullptr && setting->source > Source::profile;
  });
}

/// Returns the profile in this file. Does not read the file if the settings already hold its profile.
TunedProfile profile_in(const Settings& settings, const std::string& file) {
  const std::shared_ptr<const TunedProfile>& kept = settings.profile();
  return kept && kept->file == file ? *kept : read_profile(file);
}

void require_text(const char* field, const std::string& text) {
  if (text.size() > kMostPromptBytes)
    throw bad_option(field, "is longer than " + mebibytes(kMostPromptBytes), "give a shorter text");
  if (!is_utf8(text))
    throw bad_option(field, "is not UTF-8", "set the terminal's locale to UTF-8, or use a file in UTF-8");
}

Error impossible(const char* field, int64_t value, const std::string& rule, const std::string& remedy) {
  return bad_option(field, std::to_string(value) + " is impossible for this model: " + rule, remedy);
}

/// Throws Error, naming the nearest possible values, unless `value` is a multiple of `step`. `most` is the largest
/// possible value, or 0 if there is no limit.
void require_multiple(const char* field, int64_t value, int64_t step, int64_t most) {
  if (value >= 1 && value % step == 0) return;
  const int64_t last = most > 0 ? most : std::numeric_limits<int64_t>::max() - step;
  const int64_t below = std::max(step, std::clamp<int64_t>(value, 0, last) / step * step);
  const std::string above = below + step <= last ? " or " + std::to_string(below + step) : "";
  throw impossible(field, value, "it must be a multiple of " + std::to_string(step),
                   "use " + std::to_string(below) + above);
}

/// Returns the smallest possible number of frames. It is 2 with a last image, which needs a frame besides the first.
int64_t least_frames(const Request& request, const ModelSpec& spec) {
  return spec.image.needs_last || !request.last_image.empty() ? 2 : 1;
}

/// Throws Error unless a request may ask for this many frames. The error names the nearest numbers that the model makes
/// exactly.
void require_frames(const Request& request, int64_t frames, const ModelSpec& spec) {
  if (takes_frames(spec, frames)) return;
  const auto [below, above] = nearest_frames(spec, frames, least_frames(request, spec));
  throw impossible("frames", frames, frames_rule(spec),
                   "use " + std::to_string(below) + " or " + std::to_string(above));
}

/// Throws Error if the run's sampler cannot make the plan's number of steps. If the shift is at fault and comes from
/// the checkpoint, the error names the checkpoint's file.
void check_schedule(const Request& request, const Plan& plan, const ModelSpec& spec) {
  try {
    make_sampler(scheduler_config(plan, spec), plan.num_inference_steps);
    if (spec.sound.any()) make_sampler(sound_scheduler_config(plan, spec), plan.num_inference_steps);
  } catch (const Error& error) {
    if (error.field() != "flow_shift" || request.flow_shift) throw;
    throw bad_file("scheduler_config.json", error.what(), error.remedy());
  }
}

/// Returns the second expert's guidance scale, if there is a second expert. Its default applies only if the first
/// expert uses its default too.
std::optional<double> second_scale(const Request& request, const ModelSpec& spec) {
  if (spec.experts.size() == 1) return {};
  if (request.guidance_scale_2) return request.guidance_scale_2;
  return request.guidance_scale ? request.guidance_scale : spec.experts[1].guidance.value_or(spec.defaults.guidance);
}

double default_shift(const Plan& plan, const ModelSpec& spec) {
  const std::optional<AreaShift>& large = spec.defaults.shift_above;
  return large && plan.width * plan.height > large->pixels ? large->shift : spec.scheduler.flow_shift;
}

/// Checks the sigmas of a flow-matching sampler and copies them into the plan.
void take_sigmas(const Request& request, Plan& plan) {
  if (request.sigmas.empty()) return;
  if (std::ranges::adjacent_find(request.sigmas, std::less_equal()) != request.sigmas.end())
    throw bad_option("sigmas", "do not fall from each value to the next",
                     "give falling numbers, such as 1,0.75,0.5,0.25");
  const auto count = static_cast<int64_t>(request.sigmas.size());
  if (request.num_inference_steps.value_or(count) != count)
    throw bad_option(
        "sigmas",
        "has " + std::to_string(count) + " values, but steps is " + std::to_string(*request.num_inference_steps),
        "leave steps out, or give one sigma for each step");
  plan.sigmas = request.sigmas;
}

void check_text(const Plan& plan, const ModelSpec& spec) {
  require_text("prompt", plan.prompt);
  require_text("negative_prompt", plan.negative_prompt);
  if (plan.max_sequence_length.value_or(0) > spec.text_length)
    throw bad_option("max_sequence_length",
                     std::to_string(*plan.max_sequence_length) + " exceeds the model's max_text_seq_length",
                     "use at most " + std::to_string(spec.text_length));
}

void check_sampling(const Request& request, const Plan& plan, const ModelSpec& spec) {
  if (plan.num_inference_steps > spec.scheduler.num_train_timesteps)
    throw bad_option(
        "steps", std::to_string(plan.asked_steps) + " exceeds the scheduler's num_train_timesteps",
        "use at most " + std::to_string(asked_steps_of(spec.scheduler.num_train_timesteps, request, spec)));
  check_schedule(request, plan, spec);
}

PixelSize grid_of(const ModelSpec& spec) {
  return {.height = spec.stride[1] * spec.patch[1], .width = spec.stride[2] * spec.patch[2]};
}

/// Throws Error if the area exceeds that of `largest`, which is 0 for a model without a bound.
void check_area(const FrameArea& area, const PixelSize& largest) {
  const int64_t most = largest.height * largest.width;
  // The tolerance admits 768p, which is a little more than 1360 x 768.
  if (most == 0 || area.pixels() <= most + most / 20) return;
  throw bad_option("size", name(area) + " is too large for this model",
                   "use at most " + std::to_string(largest.width) + "x" + std::to_string(largest.height));
}

PixelSize size_of(const Request& request, const ModelSpec& spec) {
  const PixelSize size = {.height = request.height.value_or(spec.defaults.height),
                          .width = request.width.value_or(spec.defaults.width)};
  const bool follows = request.image_size && request.has_images();
  if (spec.image.fixed_size || !(follows || request.size)) return size;
  const int64_t area = request.size ? request.size->pixels() : size.height * size.width;
  const PixelSize largest = {.height = spec.largest[0], .width = spec.largest[1]};
  if (request.size) check_area(*request.size, largest);
  if (follows && spec.image.keeps_short_edge) {
    const double usual = static_cast<double>(spec.defaults.height * spec.defaults.width);
    const double edge = static_cast<double>(std::min(spec.defaults.height, spec.defaults.width)) *
                        std::sqrt(static_cast<double>(area) / usual);
    return size_of_short_edge(*request.image_size, edge, area, grid_of(spec));
  }
  return size_like(follows ? *request.image_size : kUsualShape, area, grid_of(spec), largest);
}

/// Returns the number of tokens that the plan's images add to the transformer's sequence, in the text and as keyframes.
int64_t tokens_of_images(const Plan& plan, const ModelSpec& spec) {
  if (!plan.has_images()) return 0;
  const auto& patches = spec.image.text_patches;
  const int64_t in_text = patches ? picture_tokens(plan.height, plan.width, *patches) : 0;
  return plan.images() * in_text + keyframe_tokens(plan, spec);
}

/// Throws Error if the video is too narrow for the model's text encoder, which looks at images in the video's size.
void check_seen_shape(const Plan& plan, const ModelSpec& spec) {
  if (!plan.has_images() || !spec.image.text_patches || !is_too_narrow(plan.height, plan.width)) return;
  throw bad_option(plan.image.empty() ? "last_image" : "image",
                   plan.first_given() + " cannot be used for a video of " + std::to_string(plan.width) + "x" +
                       std::to_string(plan.height) + ": the model's text encoder looks at images of at most " +
                       std::to_string(kMostPictureRatio) + " to 1",
                   "crop the image, or choose a size that is nearer to a square");
}

/// Throws an Error that says that the model has only one size and length.
void refuse_size(const char* field, const std::string& value, const std::string& remedy) {
  throw bad_option(field, value + " is impossible for this model, which has one size and length", remedy);
}

/// Returns "49 frames, which are 6.1 seconds at 8 frames a second".
std::string length_text(int64_t frames, double fps) {
  std::ostringstream text;
  text << frames << " frames";
  if (fps > 0)
    text << std::setprecision(2) << ", which are " << static_cast<double>(frames) / fps << " seconds at " << fps
         << " frames a second";
  return text.str();
}

void require_default(const char* field, int64_t value, int64_t only) {
  if (value != only) refuse_size(field, std::to_string(value), "use " + std::to_string(only) + ", or leave it out");
}

/// Throws Error if `value` exceeds `most`, the number of pixels that the model's position embeddings cover (0 for no
/// limit). Also throws as require_multiple() does.
void require_side(const char* field, int64_t value, int64_t step, int64_t most) {
  if (most > 0 && value > most)
    throw bad_option(field,
                     std::to_string(value) + " is beyond this model's position embeddings, which cover " +
                         std::to_string(most) + " pixels",
                     "use at most " + std::to_string(std::max(most / step, int64_t{1}) * step));
  require_multiple(field, value, step, most);
}

int64_t asked_frames(const Request& request, const ModelSpec& spec) {
  if (!request.seconds) return request.num_frames.value_or(spec.defaults.frames);
  const double fps = spec.takes_frame_rate ? request.fps.value_or(spec.defaults.fps) : spec.defaults.fps;
  if (spec.image.fixed_size)
    refuse_size("seconds", exact_text(*request.seconds), "leave it out for " + length_text(spec.defaults.frames, fps));
  if (!(fps > 0))
    throw bad_option("seconds", "cannot be turned into frames without a frame rate", "give fps too, or frames");
  return frames_of_seconds(spec, *request.seconds, fps, least_frames(request, spec));
}

void check_size(const Request& request, const Plan& plan, const ModelSpec& spec) {
  if (spec.image.fixed_size) {
    if (request.size) refuse_size("size", name(*request.size), "leave it out");
    require_default("width", plan.width, spec.defaults.width);
    require_default("height", plan.height, spec.defaults.height);
    require_default("frames", plan.num_frames, spec.defaults.frames);
    require_default("max_sequence_length", plan.max_sequence_length.value_or(spec.text_length), spec.text_length);
  }
  const PixelSize grid = grid_of(spec);
  require_side("width", plan.width, grid.width, spec.largest[1]);
  require_side("height", plan.height, grid.height, spec.largest[0]);
  require_frames(request, plan.num_frames, spec);
}

}  // namespace

void add_profile(Settings& settings) {
  settings.remove(Source::profile);
  const auto file = settings.text("profile");
  if (!file || settings.text("attention") == "full") return;
  const auto profile = std::make_shared<const TunedProfile>(profile_in(settings, *file));
  settings.keep_profile(profile);
  settings.add(Source::profile, options_of(*profile), *file);
}

Request read_request(const Settings& settings, const std::function<bool(const std::string& key)>& takes) {
  Request request;
  for (const Field& field : fields()) {
    const auto value = settings.text(field.name);
    const bool is_drawn = field.name == "seed" && value && is_random_seed(*value);
    if (value && !is_drawn && (!takes || takes(field.name))) field.read(request, *value);
  }
  return request;
}

std::optional<TunedProfile> apply_profile(const Settings& settings, Request& request) {
  const auto file = settings.text("profile");
  if (!file) return std::nullopt;
  TunedProfile profile = profile_in(settings, *file);
  if (chooses_blocks(settings) || settings.text("attention") == "quantized") profile.heads = {};
  if (profile.by_head()) use_heads(profile, request);
  return profile;
}

void check_images(const GivenImages& images, int64_t latent_frames, const ModelSpec& spec) {
  const ImageSpec& rules = spec.image;
  if (images.first && !rules.any())
    throw bad_option("image", "is given, but this model makes videos from text only",
                     "leave it out, or add a LoRA that teaches the model to take one");
  if (images.last && !rules.takes_last)
    throw bad_option("last_image", "is given, but this model takes no image for the last frame", "leave it out");
  if (!images.first && (rules.needed || (images.last && !rules.last_alone)))
    throw bad_option(
        "image",
        rules.needed ? "is missing: this model makes videos from images" : "is missing, but last_image is given",
        "name the picture that the video begins with");
  if (!images.last && rules.needs_last)
    throw bad_option("last_image", "is missing: this model makes videos from one image to another",
                     "name the picture that the video ends with");
  if (images.last && latent_frames == 1)
    throw bad_option("frames", "1 leaves no room for a last image",
                     "use " + std::to_string(nearest_frames(spec, 1).above));
}

int64_t keyframe_tokens(const Plan& plan, const ModelSpec& spec) {
  if (spec.image.latents != ImageSpec::Latents::keyframes) return 0;
  const hilbert::Grid grid = token_grid(spec, plan.latent);
  return plan.images() * grid.height * grid.width;
}

Plan resolve_request(const Request& request, const ModelSpec& spec) {
  check_ranges(request);
  Plan plan;
  plan.prompt = request.prompt;
  plan.negative_prompt = request.negative_prompt.value_or(spec.defaults.negative_prompt);
  if (spec.prompt.has_length) plan.max_sequence_length = request.max_sequence_length.value_or(spec.text_length);
  const PixelSize size = size_of(request, spec);
  plan.width = size.width;
  plan.height = size.height;
  plan.num_frames = asked_frames(request, spec);
  plan.image = request.image;
  plan.last_image = request.last_image;
  plan.resize = spec.image.has_own_fit() ? std::nullopt : std::optional(request.resize);
  if (!spec.image.fixed_size) plan.image_size = request.image_size;
  plan.seed = request.seed;
  plan.num_inference_steps = steps_of(request, spec);
  plan.asked_steps =
      request.sigmas.empty() ? request.num_inference_steps.value_or(spec.defaults.steps) : plan.num_inference_steps;
  plan.guidance_scale = spec.takes_guidance ? request.guidance_scale.value_or(spec.defaults.guidance) : 1;
  plan.guidance_scale_2 = second_scale(request, spec);
  plan.use_dynamic_cfg = request.use_dynamic_cfg;
  plan.guidance_passes = request.guidance_passes;
  plan.scheduler = sampler_class(request, spec);
  if (flows(request, spec)) {
    plan.flow_shift = request.flow_shift.value_or(default_shift(plan, spec));
    take_sigmas(request, plan);
  }
  if (why_cache_has_no_effect(request, spec).empty()) plan.cache = request.cache;
  plan.attention_policy = request.policy ? *request.policy : make_policy(request);
  plan.attention_policy.arithmetic = request.arithmetic.value_or(plan.attention_policy.arithmetic);
  if (request.dense_steps) plan.attention_policy.dense_steps = request.dense_steps->of(plan.num_inference_steps);
  if (request.exact_steps) plan.exact_steps = request.exact_steps->of(plan.num_inference_steps);
  plan.token_order = request.token_order;
  if (spec.takes_vae_tiling) plan.vae_tiling = request.vae_tiling;
  plan.no_audio = request.no_audio && spec.sound.any();
  check_text(plan, spec);
  check_size(request, plan, spec);
  check_seen_shape(plan, spec);
  plan.latent = latent_size(spec, plan.num_frames, plan.height, plan.width);
  plan.text_tokens = plan.max_sequence_length.value_or(spec.text_length) + tokens_of_images(plan, spec);
  check_images({.first = !plan.image.empty(), .last = !plan.last_image.empty()}, plan.latent.frames, spec);
  check_sampling(request, plan, spec);
  plan.decoded_frames = decoded_frames(spec, plan.latent.frames);
  return plan;
}

SchedulerConfig scheduler_config(const Plan& plan, const ModelSpec& spec) {
  SchedulerConfig config = spec.scheduler;
  const SamplerSpec& sampler = find_sampler(spec.samplers, plan.scheduler);
  config.kind = sampler.kind;
  config.flow_shift = plan.flow_shift.value_or(config.flow_shift);
  config.sigmas = plan.sigmas;
  if (config.sigmas.empty() && sampler.sigmas != nullptr) config.sigmas = sampler.sigmas(plan.num_inference_steps);
  return config;
}

SchedulerConfig sound_scheduler_config(const Plan& plan, const ModelSpec& spec) {
  SchedulerConfig config = spec.sound.scheduler;
  config.sigmas = plan.sigmas;
  return config;
}

}  // namespace sparsereel::models
