// Reads the environment and the command line.
#include "app/ranks/asked_ranks.h"

#include <algorithm>
#include <thread>

#include "app/early_command_line.h"
#include "app/machine.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/parallel/devices_of_ranks.h"

namespace sparsereel::app {
namespace {

std::chrono::milliseconds seconds_in(const char* name, const Environment& environment,
                                     std::chrono::milliseconds usual) {
  const char* text = environment(name);
  if (text == nullptr) return usual;
  const auto seconds = parse_number<double>(text);
  if (!seconds || !(*seconds > 0) || *seconds > 1e6)
    throw bad_input(
        std::string("the variable ") + name + "=" + text + " is not a number of seconds above 0 and up to 1000000",
        "set it to such a number, or unset it");
  return std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000));
}

}  // namespace

GroupChoice find_group_choice(const Environment& environment) {
  GroupChoice choice;
  const char* text = environment("SPARSEREEL_GROUP");
  if (text == nullptr) return choice;
  for (const std::string& word : split(text, ',')) {
    choice.of_one |= word == "of-one";
    choice.sockets |= word == "sockets";
  }
  return choice;
}

models::GroupLimits find_group_limits(const Environment& environment) {
  const models::GroupLimits usual;
  return {.start = seconds_in("SPARSEREEL_START_SECONDS", environment, usual.start),
          .call = seconds_in("SPARSEREEL_GROUP_SECONDS", environment, usual.call)};
}

std::vector<std::string> devices_of_ranks_here(int64_t count, const std::string& device) {
  const int64_t gpus = device == "cpu" ? 0 : std::ssize(find_gpu_driver().gpus);
  return models::devices_of_ranks(count, device, gpus, find_group_choice(process_environment).sockets);
}

std::string name_of_gpus(const GpusOfAVideo& gpus) {
  std::string name;
  for (const std::string& each : gpus) name += (name.empty() ? "" : "+") + each;
  return name;
}

std::vector<GpusOfAVideo> gpus_of_videos(const Settings& settings, int64_t gpus_per_video) {
  const int64_t count = settings.whole("gpus").value_or(1), each = gpus_per_video;
  if (each < 1 || count % each != 0)
    throw bad_input("--gpus-per-video " + std::to_string(each) + " does not divide --gpus " + std::to_string(count),
                    "give numbers that do, such as --gpus 4 --gpus-per-video 2");
  const std::vector<std::string> devices = devices_of_ranks_here(count, settings.text("device", "auto"));
  std::vector<GpusOfAVideo> gpus;
  for (auto first = devices.begin(); first != devices.end(); first += each) gpus.emplace_back(first, first + each);
  return gpus;
}

bool is_silent_rank(const char* const* words, const Environment& environment) {
  const EarlyLine line = read_early(words);
  if (line.command == nullptr || line.command->path != "generate") return false;
  bool asks_for_one = false;  // true if the last --gpus is 1
  EarlyOption option;
  for (EarlyOptions options(line.words); options.read(option);)
    if (option.is("--gpus")) asks_for_one = option.value == "1";
  if (asks_for_one) return false;
  try {
    const auto launched = find_launched(environment);
    return launched && launched->rank > 0;
  } catch (const Error&) {  // the code that needs the launcher's variables reports the error
    return false;
  }
}

int64_t ranks_of_video(const Settings& settings, const Environment& environment) {
  const std::optional<int64_t> gpus = settings.whole("gpus");
  const auto launched = find_launched(environment);
  return gpus != 1 && launched && launched->size > 1 ? launched->size : gpus.value_or(1);
}

int threads_of_each(int64_t processes) {
  const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return static_cast<int>(std::max<int64_t>(1, cores / processes));
}

}  // namespace sparsereel::app
