// Handles the messages between ranks that concern the command line. models/engine/worker.cpp handles all other
// messages.
#include "app/ranks/shared_model.h"

#include <c10/core/InferenceMode.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "app/called_program.h"
#include "app/jobs/interrupt.h"
#include "app/terminal.h"
#include "hilbert/error.h"
#include "models/engine/failure.h"
#include "models/layers/cpu_threads.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

/// Throws Error if the ranks were started with different command lines, because these ask for different videos.
void compare_given(const World& world, const nlohmann::json& rank_0) {
  if (!world.given() || rank_0.is_null()) return;
  nlohmann::json own = *world.given(), others = rank_0;
  for (const char* name : {"device", "threads", "quiet", "verbose", "json", "report"}) {  // may differ between ranks
    own.erase(name);
    others.erase(name);
  }
  for (const auto& [left, right] : {std::pair(&own, &others), std::pair(&others, &own)})
    for (const auto& [name, value] : left->items())
      if (!right->contains(name) || right->at(name) != value)
        throw bad_option(name, "differs from that on rank 0",
                         "give all ranks the same options, or --gpus 1 to make one video per rank");
}

std::shared_ptr<models::Pipeline> open_told_model(World& world, const nlohmann::json& message) {
  compare_given(world, message.at("given"));
  const auto group = message.at("group").get<std::vector<char>>();
  world.group_maker().begin({group.begin(), group.end()}, models::told_number(message, "passes", 1, 2));
  const int64_t threads = models::told_number(message, "threads", 1, 4096);
  if (at::Device(models::resolve_device(world.device())).is_cpu()) models::set_threads(static_cast<int>(threads));
  RunOptions run;
  run.model = message.at("model").get<std::string>();
  run.files = message.at("files").get<std::map<std::string, std::string>>();
  run.random_weights = message.at("random_weights").get<bool>();
  if (!message.at("with_images").is_null()) run.with_images = message.at("with_images").get<bool>();
  auto pipeline = models::Pipeline::open(open_model(run), models::request_of(message.at("request"), world.device()));
  pipeline->check_weights();
  pipeline->load_transformer();
  return pipeline;
}

/// Connects to the other ranks. If that fails, prints the error here, because no other rank can print it.
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

void send_model(World& world, const GenerateOptions& options, int threads) {
  nlohmann::json given;
  if (world.given()) given = *world.given();
  const std::string group = world.group_maker().new_id();
  // The model is not read yet, so an unset guidance scale counts as guided. NCCL's group is split for this number of
  // passes now. A split that no video uses costs some memory; a missing split is made when a video begins.
  const int64_t passes = options.request.guidance_scale.value_or(2) > 1 ? 2 : 1;
  models::send_model(
      world, {{"given", given},
              {"group", std::vector<char>(group.begin(), group.end())},
              {"passes", passes},
              {"model", options.run.model.string()},
              {"files", options.run.files},
              {"random_weights", options.run.random_weights},
              {"with_images", options.run.with_images ? nlohmann::json(*options.run.with_images) : nlohmann::json()},
              {"threads", threads},
              {"request", models::json_of(options.request)}});
  world.group_maker().begin(group, passes);
}

int follow(World& world, std::exception_ptr failure) {
  const c10::InferenceMode guard;
  try {
    if (!failure) models::start_device(world.device());
  } catch (...) {  // reported once the ranks are connected
    failure = std::current_exception();
  }
  try {
    connect_or_say(world);
    if (failure) std::rethrow_exception(failure);
    models::WorkerTasks tasks{.device = world.device(),
                              .open = [&](const nlohmann::json& model) { return open_told_model(world, model); }};
    if (world.given()) {  // a launcher signals all ranks: this rank then stops its steps, and rank 0 does the rest
      interrupted();
      tasks.cancelled = interrupted;
    }
    models::work(world, tasks);
    world.finish();
    return 0;
  } catch (...) {
    const Error error = models::as_error(std::current_exception());
    world.end(error);
    return models::exit_code(error.kind());
  }
}

}  // namespace sparsereel::app
