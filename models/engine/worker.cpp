// Sends requests as the texts of their fields, and tensors as bytes. Each worker resolves its own plan and compares its
// recipe with rank 0's recipe.
#include "models/engine/worker.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "hilbert/error.h"
#include "models/engine/failure.h"
#include "models/engine/state_parts.h"
#include "models/files/json_text.h"
#include "models/parallel/messages.h"
#include "models/request/denoising_state.h"
#include "models/request/fields.h"
#include "models/request/frame_sink.h"
#include "models/request/tuned_profile.h"

namespace sparsereel::models {
namespace {

Error unknown(const std::string& cause) {
  return run_failure(cause, "start all ranks with the same program");
}

/// Forwards events to this rank's observer, after checking that all ranks are still there.
class RankObserver final : public Observers {
 public:
  RankObserver(Rank& rank, RunObserver& observer) : Observers({&observer}), rank_(rank) {}

  /// If an observer cancels after a step, all ranks stop when they next check for cancellation together.
  void step(const StepDone& step) override {
    try {
      Observers::step(step);
    } catch (const Cancelled&) {
      gave_up_ = false;
      stopped_ = true;
    }
  }
  void others_released() override {
    Observers::others_released();
    rank_.need_others(false);
  }

  /// Returns true if an observer has cancelled after a step.
  bool stopped() const { return stopped_; }
  /// Returns true if an observer has cancelled at another event, which the other ranks do not see.
  bool gave_up() const { return gave_up_; }

 protected:
  void tell_all(const std::function<void(RunObserver&)>& event) override {
    rank_.check();
    try {
      Observers::tell_all(event);
    } catch (const Cancelled&) {
      gave_up_ = true;
      throw;
    }
  }

 private:
  Rank& rank_;
  bool stopped_ = false, gave_up_ = false;
};

/// The observer of a worker. It discards frames, because only rank 0 writes them.
class NoFrames final : public RunObserver, public FrameSink {
 public:
  FrameSink* frames() override { return this; }
  at::ScalarType dtype() const override { return at::kByte; }
  void begin(const VideoShape& /*shape*/, bool /*tiled*/) override {}
  void take(const at::Tensor& /*frames*/) override {}
};

Outcome make_part(Rank& rank, Pipeline& pipeline, const Plan& plan, const Inputs& inputs, Run run,
                  RankObserver& watched, Outcome begun) {
  run.observer = &watched;
  run.group = &rank.group();
  run.cancelled = [&rank, &watched, own = std::move(run.cancelled)] {
    rank.check();
    return watched.stopped() || (own && own());
  };
  return pipeline.generate(plan, inputs, run, std::move(begun));
}

void send_state(SocketGroup& control, const DenoisingState* state) {
  if (state == nullptr) return send_message(control, nullptr);
  const StateParts parts = parts_of(*state);
  nlohmann::json names = nlohmann::json::array();
  for (const auto& [name, tensor] : parts.tensors) names.push_back(name);
  send_message(control, {{"run", parts.run}, {"tensors", names}});
  for (const auto& [name, tensor] : parts.tensors) send_tensor(control, tensor);
}

std::shared_ptr<const DenoisingState> receive_state(SocketGroup& control, const CacheRule& cache) {
  const nlohmann::json told = receive_message(control);
  if (told.is_null()) return {};
  StateParts parts{.tensors = {}, .run = told.at("run")};
  for (const auto& name : told.at("tensors")) parts.tensors[name.get<std::string>()] = receive_tensor(control);
  return std::make_shared<const DenoisingState>(state_of(parts, cache));
}

nlohmann::json json_of(const std::vector<TextSpan>& spans) {
  nlohmann::json json = nlohmann::json::array();
  for (const TextSpan& span : spans) json.push_back({span.first, span.count});
  return json;
}

std::vector<TextSpan> spans_of(const nlohmann::json& json) {
  std::vector<TextSpan> spans;
  for (const auto& span : json) spans.push_back({.first = span.at(0), .count = span.at(1)});
  return spans;
}

void send_video(SocketGroup& control, Request request, const Plan& plan, const Inputs& inputs, const Run& run) {
  request.num_frames = plan.num_frames;  // `seconds` needs a frame rate that the other ranks do not know
  request.seconds.reset();
  if (request.policy && request.policy_file.empty())
    throw run_failure("the policy for each head is not in a profile's file, so other ranks cannot read it",
                      "write it into a profile, or make the video with one rank");
  nlohmann::json size;
  if (request.image_size) size = {request.image_size->height, request.image_size->width};
  send_message(control, {{"what", "video"},
                         {"request", json_of(request)},
                         {"policy_file", request.policy ? request.policy_file : ""},
                         {"image_size", size},
                         {"recipe", recipe_of(plan)},
                         {"text_lengths", inputs.conditioning.text_lengths},
                         {"pictures", json_of(inputs.conditioning.pictures)},
                         {"decode", inputs.decode},
                         {"keep_transformer", inputs.keep_transformer},
                         {"checkpoint_every", run.checkpoints.every},
                         {"checkpoint_last", run.checkpoints.last},
                         {"checkpoint_cancelled", run.checkpoints.cancelled}});
  for (const auto member : Conditioning::tensors()) send_tensor(control, inputs.conditioning.*member);
  send_tensor(control, inputs.init_latents.video);
  send_tensor(control, inputs.init_latents.sound);
  send_state(control, inputs.resume.get());
}

/// Throws Error if the lengths do not fit the text, because models do not check them again.
void check_text_lengths(const Conditioning& conditioning) {
  const at::Tensor& text = conditioning.text;
  const std::vector<int64_t>& lengths = conditioning.text_lengths;
  if (lengths.empty()) return;
  const bool has_rows = text.defined() && text.dim() >= 2 && text.size(0) == std::ssize(lengths);
  if (!has_rows || !std::ranges::all_of(lengths, [&](int64_t each) { return each >= 0 && each <= text.size(1); }))
    throw unknown("rank 0 sent text lengths that do not fit its text");
}

Inputs receive_inputs(SocketGroup& control, const nlohmann::json& message, const Plan& plan) {
  Inputs inputs;
  for (const auto member : Conditioning::tensors()) inputs.conditioning.*member = receive_tensor(control);
  inputs.conditioning.text_lengths = message.at("text_lengths").get<std::vector<int64_t>>();
  check_text_lengths(inputs.conditioning);
  inputs.conditioning.pictures = spans_of(message.at("pictures"));
  inputs.init_latents.video = receive_tensor(control);
  inputs.init_latents.sound = receive_tensor(control);
  inputs.resume = receive_state(control, plan.cache);
  inputs.decode = message.at("decode").get<bool>();
  inputs.keep_transformer = message.at("keep_transformer").get<bool>();
  return inputs;
}

/// Reads the request from rank 0's message, and adds what its fields do not contain: the profile's policies and the
/// image's size.
Request receive_request(const nlohmann::json& message, const std::string& device) {
  Request request = request_of(message.at("request"), device);
  if (const auto file = message.at("policy_file").get<std::string>(); !file.empty())
    use_heads(read_profile(file), request);
  if (const auto& size = message.at("image_size"); !size.is_null())
    request.image_size = PixelSize{.height = size.at(0), .width = size.at(1)};
  return request;
}

/// Throws Error if this rank would make another video than rank 0, whose recipe is `recipe`.
void agree_on_recipe(const Plan& plan, const nlohmann::json& recipe, int64_t rank) {
  const nlohmann::json own = recipe_of(plan), nothing;
  for (const nlohmann::json* either : {&recipe, &own})
    for (const auto& item : either->items()) {
      const nlohmann::json here = own.value(item.key(), nothing), there = recipe.value(item.key(), nothing);
      if (here != there)
        throw run_failure("rank " + std::to_string(rank) + " would make a different video from rank 0: " + item.key() +
                              " is " + here.dump() + ", but on rank 0 it is " + there.dump(),
                          "give all ranks the same model, program and kind of GPU");
    }
}

void make_told_video(Rank& rank, Pipeline& pipeline, const WorkerTasks& tasks, const nlohmann::json& message) {
  SocketGroup& control = rank.control();
  const Plan plan =
      pipeline.resolve(receive_request(message, tasks.device), message.at("decode").get<bool>(), control.size());
  agree_on_recipe(plan, message.at("recipe"), control.rank());
  const Inputs inputs = receive_inputs(control, message, plan);
  NoFrames frames;
  RankObserver watched(rank, frames);
  Run run;
  run.cancelled = tasks.cancelled;
  // All ranks must take part when rank 0 saves a state.
  run.checkpoints = {.every = message.at("checkpoint_every").get<int64_t>(),
                     .last = message.at("checkpoint_last").get<bool>(),
                     .cancelled = message.at("checkpoint_cancelled").get<bool>()};
  try {
    make_part(rank, pipeline, plan, inputs, std::move(run), watched, {});
  } catch (const Cancelled&) {  // all ranks are cancelled; rank 0 saves the state and reports it
  }
}

}  // namespace

nlohmann::json json_of(const Request& request) {
  std::map<std::string, std::string> values;
  for (const Field& field : fields())
    if (std::string text = field.text(request); !text.empty()) values[field.name] = std::move(text);
  // json_of() leaves out empty texts, but an empty negative prompt differs from an unset one, for which the model's
  // default is used
  if (request.negative_prompt) values["negative_prompt"] = *request.negative_prompt;
  return values;
}

Request request_of(const nlohmann::json& json, const std::string& device) {
  Request request = read_request(json.get<std::map<std::string, std::string>>());
  request.device = device;
  return request;
}

int64_t told_number(const nlohmann::json& message, const char* name, int64_t least, int64_t most) {
  const auto number = message.at(name).get<int64_t>();
  if (number >= least && number <= most) return number;
  throw unknown("rank 0 sent an impossible number of " + std::string(name) + ", " + std::to_string(number));
}

void send_model(Rank& rank, nlohmann::json model) {
  model["what"] = "model";
  send_message(rank.control(), model);
}

void send_end(Rank& rank) {
  send_message(rank.control(), {{"what", "end"}});
}

Outcome lead_video(Rank& rank, Pipeline& pipeline, const Request& request, const Plan& plan, const Inputs& inputs,
                   const Run& run, Outcome begun) {
  RankObserver watched(rank, run.tell());
  try {
    rank.need_others(true);
    send_video(rank.control(), request, plan, inputs, run);
    Outcome outcome = make_part(rank, pipeline, plan, inputs, run, watched, std::move(begun));
    if (watched.stopped()) throw Cancelled{};  // the last step was the end of the run, so the other ranks are done, too
    rank.check();                              // throws if a rank has failed, because the frames are then worthless
    return outcome;
  } catch (const Cancelled&) {
    if (watched.gave_up()) rank.end(as_error(std::current_exception()));
    throw;
  } catch (...) {
    rank.end(as_error(std::current_exception()));
    throw;
  }
}

void work(Rank& rank, const WorkerTasks& tasks) {
  std::shared_ptr<Pipeline> pipeline;
  for (;;) {
    const nlohmann::json message = receive_message(rank.control());
    const auto what = message.at("what").get<std::string>();
    if (what == "end") return;
    if (what == "model")
      pipeline = tasks.open(message);
    else if (what == "video" && pipeline)
      make_told_video(rank, *pipeline, tasks, message);
    else
      throw unknown("rank 0 sent a message " + in_quotes(what) + ", which this program does not know");
  }
}

}  // namespace sparsereel::models
