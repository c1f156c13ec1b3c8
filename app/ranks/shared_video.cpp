// Requests as texts by their fields, tensors as bytes; the other ranks resolve a plan of their own and compare.
#include "app/ranks/shared_video.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <utility>

#include "app/called_program.h"
#include "app/jobs/denoising_checkpoint.h"
#include "app/jobs/interrupt.h"
#include "app/ranks/messages.h"
#include "app/terminal.h"
#include "models/engine/denoising.h"
#include "models/engine/failure.h"
#include "models/files/json_text.h"
#include "models/layers/cpu_threads.h"
#include "models/request/denoising_state.h"
#include "models/request/fields.h"
#include "models/request/frame_sink.h"
#include "models/request/outcome.h"
#include "models/request/run.h"
#include "models/request/tuned_profile.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

nlohmann::json json_of(const models::Request& request) {
  std::map<std::string, std::string> values;
  for (const models::Field& field : models::fields())
    if (std::string text = field.text(request); !text.empty()) values[field.name] = std::move(text);
  if (request.negative_prompt) values["negative_prompt"] = *request.negative_prompt;  // "" is not the model's own
  return values;
}

models::Request request_of(const nlohmann::json& json, const World& world) {
  models::Request request = models::read_request(json.get<std::map<std::string, std::string>>());
  request.device = world.device();
  return request;
}

at::Tensor bytes_of_file(const std::filesystem::path& path) {
  std::error_code ignored;
  at::Tensor bytes = at::empty({static_cast<int64_t>(std::filesystem::file_size(path, ignored))}, at::kByte);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(bytes.mutable_data_ptr<uint8_t>()), bytes.numel()))
    throw run_failure(path.string() + " could not be read", "run the same command again");
  return bytes;
}

/// A file in memory that lives as long as this.
class MemoryFile {
 public:
  explicit MemoryFile(const at::Tensor& bytes) : descriptor_(memfd_create("checkpoint of rank 0", MFD_CLOEXEC)) {
    const auto* data = bytes.const_data_ptr<uint8_t>();
    for (int64_t done = 0; done < bytes.numel();) {
      const ssize_t count = write(descriptor_, data + done, static_cast<size_t>(bytes.numel() - done));
      if (count <= 0) throw run_failure("no memory for the checkpoint of rank 0", "free some memory");
      done += count;
    }
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

/// Asks after each wait whether all ranks are still there.
class RanksCheck final : public models::RunObserver {
 public:
  explicit RanksCheck(World& world) : world_(world) {}

  void step(const models::StepDone& /*step*/) override { world_.check(); }
  void within_step(const models::WithinStep& /*step*/) override { world_.check(); }
  void decoded(const models::Pieces& /*pieces*/) override { world_.check(); }
  void latents(const models::Outcome& /*outcome*/) override { world_.check(); }
  void checkpoint(const models::DenoisingState& /*state*/) override { world_.check(); }
  void alone() override {
    world_.check();
    world_.need_others(false);
  }

 private:
  World& world_;
};

/// Frames that rank 0 writes.
class NoFrames final : public models::RunObserver, public models::FrameSink {
 public:
  models::FrameSink* frames() override { return this; }
  at::ScalarType dtype() const override { return at::kByte; }
  void begin(const models::VideoShape& /*shape*/, bool /*tiled*/) override {}
  void take(const at::Tensor& /*frames*/) override {}
};

/// Before Pipeline::generate() with these inputs; `run` is what that gets.
void tell_video(World& world, const Video& video, const models::Inputs& inputs, const models::Run& run) {
  models::Request request = video.options.request;
  request.num_frames = video.plan.num_frames;  // counted by a frame rate that the others do not know
  request.seconds.reset();
  const bool by_head = video.options.profile && video.options.profile->by_head();
  world.need_others(true);
  nlohmann::json size;
  if (request.image_size) size = {request.image_size->height, request.image_size->width};
  tell(world.control(), {{"what", "video"},
                         {"request", json_of(request)},
                         {"profile", by_head ? video.settings.text("profile", "") : ""},
                         {"image_size", size},
                         {"recipe", models::recipe_of(video.plan)},
                         {"identity", video.identity},
                         {"text_lengths", inputs.conditioning.text_lengths},
                         {"decode", inputs.decode},
                         {"keep_transformer", inputs.keep_transformer},
                         {"checkpoint_every", run.checkpoints.every},
                         {"checkpoint_last", run.checkpoints.last},
                         {"checkpoint_cancelled", run.checkpoints.cancelled}});
  for (const auto member : models::Conditioning::tensors()) {
    const at::Tensor& tensor = inputs.conditioning.*member;
    tell_tensor(world.control(), tensor.defined() ? tensor.to(at::kCPU) : tensor);
  }
  tell_tensor(world.control(), inputs.init_latents);
  tell_tensor(world.control(), inputs.resume ? bytes_of_file(video.checkpoint) : at::Tensor());
}

/// Pipeline::generate() by this rank of all.
models::Outcome make_over_ranks(World& world, models::Pipeline& pipeline, const models::Plan& plan,
                                const models::Inputs& inputs, models::Run run) {
  RanksCheck check(world);
  models::Observers observers({&check, &run.tell()});
  run.observer = &observers;
  run.group = &world.group();
  run.cancelled = [&world, own = std::move(run.cancelled)] {
    world.check();
    return own && own();
  };
  return pipeline.generate(plan, inputs, run);
}

Error unknown(const std::string& cause) {
  return run_failure(cause, "start all ranks with the same program");
}

int64_t number_in(const nlohmann::json& message, const char* name, int64_t least, int64_t most) {
  const auto number = message.at(name).get<int64_t>();
  if (number >= least && number <= most) return number;
  throw unknown("rank 0 tells of " + std::to_string(number) + " " + name);
}

/// Lengths are places in the text, which models read without asking again.
void check_text_lengths(const models::Conditioning& conditioning) {
  const at::Tensor& text = conditioning.text;
  const std::vector<int64_t>& lengths = conditioning.text_lengths;
  if (lengths.empty()) return;
  const bool has_rows = text.defined() && text.dim() >= 2 && text.size(0) == std::ssize(lengths);
  if (!has_rows || !std::ranges::all_of(lengths, [&](int64_t each) { return each >= 0 && each <= text.size(1); }))
    throw unknown("rank 0 tells of a text's lengths that are not that text's");
}

/// What another rank than 0 has in its hands.
class Follower {
 public:
  explicit Follower(World& world) : world_(world) {}

  void run() {
    for (;;) {
      const nlohmann::json message = hear(world_.control());
      const auto what = message.at("what").get<std::string>();
      if (what == "end") return;
      if (what == "model")
        open(message);
      else if (what == "video")
        make(message);
      else
        throw unknown("rank 0 tells of " + models::in_quotes(what) + ", which this program does not know");
    }
  }

 private:
  /// Who starts the ranks with other command lines wants other videos of them.
  void compare_given(const nlohmann::json& rank_0) const {
    if (!world_.given() || rank_0.is_null()) return;
    nlohmann::json own = *world_.given(), others = rank_0;
    for (const char* name : {"device", "threads", "quiet", "verbose", "json", "report"}) {  // of a process
      own.erase(name);
      others.erase(name);
    }
    for (const auto& [left, right] : {std::pair(&own, &others), std::pair(&others, &own)})
      for (const auto& [name, value] : left->items())
        if (!right->contains(name) || right->at(name) != value)
          throw bad_option(name, "is not the same here as on rank 0",
                           "start all ranks with one command line, or with --gpus 1 for a video of each");
  }

  void open(const nlohmann::json& message) {
    compare_given(message.at("given"));
    const auto group = message.at("group").get<std::vector<char>>();
    world_.begin_group({group.begin(), group.end()}, number_in(message, "passes", 1, 2));
    const int64_t threads = number_in(message, "threads", 1, 4096);
    if (at::Device(models::resolve_device(world_.device())).is_cpu()) models::set_threads(static_cast<int>(threads));
    RunOptions run;
    run.model = message.at("model").get<std::string>();
    run.files = message.at("files").get<std::map<std::string, std::string>>();
    run.random_weights = message.at("random_weights").get<bool>();
    if (!message.at("with_images").is_null()) run.with_images = message.at("with_images").get<bool>();
    pipeline_ = models::Pipeline::open(open_model(run), request_of(message.at("request"), world_));
    pipeline_->check_weights();
    pipeline_->load_transformer();
  }

  /// With what cannot be told by fields.
  models::Request hear_request(const nlohmann::json& message) const {
    models::Request request = request_of(message.at("request"), world_);
    if (const auto profile = message.at("profile").get<std::string>(); !profile.empty())
      models::use_heads(models::read_profile(profile), request);
    if (const auto& size = message.at("image_size"); !size.is_null())
      request.image_size = models::PixelSize{.height = size.at(0), .width = size.at(1)};
    return request;
  }

  void check(const models::Plan& plan, const nlohmann::json& recipe) const {
    const nlohmann::json own = models::recipe_of(plan);
    for (const auto& [field, value] : recipe.items())
      if (own.value(field, nlohmann::json()) != value)
        throw run_failure("another video would be made here: " + field + " is " +
                              own.value(field, nlohmann::json()).dump() + ", on rank 0 " + value.dump(),
                          "give all ranks the same model, program and kind of card");
  }

  models::Inputs hear_inputs(const nlohmann::json& message, const models::Plan& plan) {
    models::Inputs inputs;
    for (const auto member : models::Conditioning::tensors())
      inputs.conditioning.*member = hear_tensor(world_.control());
    inputs.conditioning.text_lengths = message.at("text_lengths").get<std::vector<int64_t>>();
    check_text_lengths(inputs.conditioning);
    inputs.init_latents = hear_tensor(world_.control());
    const at::Tensor state = hear_tensor(world_.control());
    if (state.defined()) {
      const MemoryFile file(state);
      inputs.resume = load_checkpoint(file.path(), message.at("identity").get<std::string>(), plan.cache);
    }
    inputs.decode = message.at("decode").get<bool>();
    inputs.keep_transformer = message.at("keep_transformer").get<bool>();
    return inputs;
  }

  void make(const nlohmann::json& message) {
    const models::Plan plan =
        pipeline_->resolve(hear_request(message), message.at("decode").get<bool>(), world_.size());
    check(plan, message.at("recipe"));
    const models::Inputs inputs = hear_inputs(message, plan);
    NoFrames frames;
    models::Run run;
    run.observer = &frames;
    // States that rank 0 keeps are made by all of them.
    run.checkpoints = {.every = message.at("checkpoint_every").get<int64_t>(),
                       .last = message.at("checkpoint_last").get<bool>(),
                       .cancelled = message.at("checkpoint_cancelled").get<bool>()};
    if (world_.given()) run.cancelled = interrupted;  // a launcher's signals come to all
    try {
      make_over_ranks(world_, *pipeline_, plan, inputs, std::move(run));
    } catch (const models::Cancelled&) {  // all are: rank 0 keeps what there is, and then says so
    }
  }

  World& world_;
  std::shared_ptr<models::Pipeline> pipeline_;
};

/// Where nobody is there to be told, this rank says itself why it ends.
void connect_or_say(World& world) {
  try {
    world.connect();
  } catch (const Error& error) {
    std::cerr << "error: rank " << world.rank() << ": " << one_line(error.what())
              << "\n  remedy: " << indented_lines(as_called(error.remedy())) << std::endl;
    throw;
  }
}

}  // namespace

void tell_model(World& world, const GenerateOptions& options, int threads) {
  nlohmann::json given;
  if (world.given()) given = *world.given();
  const std::string group = world.group_id();
  // Of the model nothing is read yet: where the scale is left open it counts as guided. Splits that no video uses cost
  // some memory; those that are missing are made when a video begins.
  const int64_t passes = options.request.guidance_scale.value_or(2) > 1 ? 2 : 1;
  tell(world.control(),
       {{"what", "model"},
        {"given", given},
        {"group", std::vector<char>(group.begin(), group.end())},
        {"passes", passes},
        {"model", options.run.model.string()},
        {"files", options.run.files},
        {"random_weights", options.run.random_weights},
        {"with_images", options.run.with_images ? nlohmann::json(*options.run.with_images) : nlohmann::json()},
        {"threads", threads},
        {"request", json_of(options.request)}});
  world.begin_group(group, passes);
}

models::Outcome generate_over_ranks(World& world, models::Pipeline& pipeline, const Video& video,
                                    const models::Inputs& inputs, const models::Run& run) {
  try {
    tell_video(world, video, inputs, run);
    models::Outcome outcome = make_over_ranks(world, pipeline, video.plan, inputs, run);
    world.check();  // before its frames count
    return outcome;
  } catch (const models::Cancelled&) {  // all are
    throw;
  } catch (...) {
    world.end(models::as_error(std::current_exception()));
    throw;
  }
}

int follow(World& world, std::exception_ptr failure) {
  const c10::InferenceMode guard;
  try {
    if (!failure) models::start_device(world.device());
  } catch (...) {  // to be told, once there is somebody to tell
    failure = std::current_exception();
  }
  try {
    connect_or_say(world);
    if (failure) std::rethrow_exception(failure);
    if (world.given()) interrupted();  // from now on a signal is for rank 0 to end all, and for the steps
    Follower(world).run();
    world.finish();
    return 0;
  } catch (...) {
    const Error error = models::as_error(std::current_exception());
    world.end(error);
    return models::exit_code(error.kind());
  }
}

}  // namespace sparsereel::app
