// Rank 0 starts processes and sockets between them; the others find theirs in the environment, or by their launcher.
#include "app/ranks/world.h"

#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <thread>

#include "app/called_program.h"
#include "app/early_command_line.h"
#include "app/machine.h"
#include "app/ranks/messages.h"
#include "app/terminal.h"
#include "hilbert/read_text.h"
#include "models/engine/failure.h"
#include "models/files/temporary.h"
#include "models/parallel/nccl_group.h"
#include "models/parallel/patience.h"
#include "models/parallel/rendezvous.h"
#include "models/parallel/share.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

/// For rank 0 to notice by itself that another rank is gone, and to end as ever; then it is ended.
constexpr std::chrono::seconds kToEnd{8};

std::chrono::milliseconds seconds_in(const char* name, const Environment& environment,
                                     std::chrono::milliseconds usual) {
  const char* text = environment(name);
  if (text == nullptr) return usual;
  const auto seconds = parse_number<double>(text);
  if (!seconds || !(*seconds > 0) || *seconds > 1e6)
    throw bad_input(std::string("the variable ") + name + "=" + text + " is no number of seconds", "unset it");
  return std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000));
}

bool is_a_gpu(const std::string& device) {
  return device.starts_with("cuda");
}

/// Whatever failed: a GPU that is broken says so to whoever asks. Waits for nothing: what it does may wait for others.
bool is_sound(const std::string& name) noexcept {
  try {
    if (!is_a_gpu(name)) return true;
    const at::Device device = models::resolve_device(name);
    const c10::impl::VirtualGuardImpl gpu(device.type());
    static_cast<void>(gpu.queryStream(gpu.getStream(device)));
    return true;
  } catch (...) {
    return false;
  }
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

std::vector<std::string> devices_of_ranks(int64_t count, const std::string& device, bool may_share) {
  if (count < 1 || count > 64)
    throw bad_option("gpus", std::to_string(count) + " is no number of cards from 1 to 64",
                     "give that of this machine");
  if (device == "cpu") return std::vector<std::string>(static_cast<size_t>(count), device);
  const std::string text = std::to_string(count);
  if (device != "auto" && device != "cuda")
    throw bad_option("device", device + " is one card, but gpus " + text + " are asked for",
                     "leave it out, and choose cards with CUDA_VISIBLE_DEVICES");
  const auto cards = static_cast<int64_t>(find_gpu_driver().gpus.size());
  if (cards == 0)
    throw bad_option("gpus", text + ": there is no GPU here",
                     "leave it out; 'sparsereel doctor' says what a GPU run needs");
  if (count > cards && !may_share)
    throw bad_option("gpus", text + " is more than this machine has: " + std::to_string(cards),
                     "give at most so many; on several machines, start the command with torchrun or srun");
  std::vector<std::string> devices;
  for (int64_t rank = 0; rank < count; ++rank) devices.push_back("cuda:" + std::to_string(rank % cards));
  return devices;
}

bool is_silent_rank(const char* const* words, const Environment& environment) {
  const EarlyLine line = read_early(words);
  if (line.command == nullptr || line.command->path != "generate") return false;
  bool asks_for_one = false;  // by the last --gpus
  EarlyOption option;
  for (EarlyOptions options(line.words); options.read(option);)
    if (option.is("--gpus")) asks_for_one = option.value == "1";
  if (asks_for_one) return false;
  try {
    const auto launched = find_launched(environment);
    return launched && launched->rank > 0;
  } catch (const Error&) {  // said by whoever needs it
    return false;
  }
}

int64_t ranks_of_video(const Settings& settings, const Environment& environment) {
  const std::optional<int64_t> gpus = settings.whole("gpus");
  const auto launched = find_launched(environment);
  return gpus != 1 && launched && launched->size > 1 ? launched->size : gpus.value_or(1);
}

std::unique_ptr<World> World::find(const Settings& settings, std::map<std::string, std::string> given) {
  const GroupChoice choice = find_group_choice(process_environment);
  const auto launched = find_launched(process_environment);
  const std::optional<int64_t> gpus = settings.whole("gpus");
  const std::string device = settings.text("device", "auto");
  if (launched && launched->size > 1 && gpus != 1) {
    if (gpus)
      throw bad_option(
          "gpus",
          std::to_string(*gpus) + ": " + launched->source + " has started " + std::to_string(launched->size) + " ranks",
          "leave it out: each rank takes a card; with 1, each process makes a video of its own");
    std::unique_ptr<World> world = World::launched(*launched, device);
    world->given_ = std::move(given);
    return world;
  }
  const int64_t count = gpus.value_or(1);
  if (count == 1 && !choice.of_one) return nullptr;
  return start(devices_of_ranks(count, device, choice.sockets));
}

std::unique_ptr<World> World::start(std::vector<std::string> devices) {
  std::unique_ptr<World> world(new World);
  world->sockets_ = find_group_choice(process_environment).sockets;
  world->limits_ = find_group_limits(process_environment);
  world->devices_ = std::move(devices);
  world->size_ = world->ranks_here_ = std::ssize(world->devices_);
  world->device_ = world->name_ = world->devices_.front();
  auto links = models::local_links(world->size_);
  world->links_ = links.front();
  try {
    world->children_ = std::make_unique<Children>(links, world->devices_);
  } catch (...) {
    for (size_t rank = 1; rank < links.size(); ++rank) models::close_links(links[rank]);
    throw;
  }
  for (size_t rank = 1; rank < links.size(); ++rank) models::close_links(links[rank]);
  world->children_->watch([all = world.get()](int64_t rank, const std::string& how) { all->child_died(rank, how); });
  return world;
}

World::World(const StartedRank& started)
    : rank_(started.rank),
      size_(static_cast<int64_t>(started.links.size())),
      ranks_here_(size_),
      device_(started.device),
      name_(started.device),
      limits_(find_group_limits(process_environment)),
      sockets_(find_group_choice(process_environment).sockets),
      links_(started.links) {}

std::unique_ptr<World> World::launched(const Launched& place, const std::string& device) {
  std::unique_ptr<World> world(new World);
  world->rank_ = place.rank;
  world->size_ = place.size;
  world->launched_ = place;
  world->limits_ = find_group_limits(process_environment);
  world->sockets_ = find_group_choice(process_environment).sockets;
  world->device_ = device;
  if ((device == "auto" || device == "cuda") && models::cuda_available()) {
    const auto count = std::max<int64_t>(at::detail::getCUDAHooks().deviceCount(), 1);
    world->device_ = "cuda:" + std::to_string(place.local_rank.value_or(place.rank) % count);
  }
  world->name_ = (world->device_ == "auto" ? "cpu" : world->device_) + " of " + models::host_name();
  return world;
}

World::~World() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  leaving_changed_.notify_all();
  if (control_ && end_call_ >= 0) control_->forget(end_call_);
  if (control_ && !finished_) control_->abort("left before the end");
  if (children_ && !control_) models::close_links(links_);  // they hear by it that nobody comes
  if (children_ && control_ && control_->ended()) end_others();
  group_.reset();
  if (begun_group_.valid()) begun_group_.wait();  // what still made it ended with the control group
  begun_group_ = {};
  children_.reset();  // before the group that its thread may blame
}

/// After a failure nobody waits for what the others still do. What this rank's GPU shares with them goes with the group
/// only once they are gone; else a set would keep it for each row that fails.
void World::end_others() {
  children_.reset();
  models::Patience patience{std::chrono::seconds(1)};  // the system has closed their sockets; it is to be heard of
  while (!control_->are_others_gone() && patience.step().count() > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

int threads_of_each(int64_t processes) {
  const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return static_cast<int>(std::max<int64_t>(1, cores / processes));
}

bool World::has_gpu() const {
  return is_a_gpu(device_);
}

int World::threads() const {
  return has_gpu() ? at::get_num_threads() : threads_of_each(ranks_here_);
}

void World::connect() {
  std::vector<models::Link> links = std::exchange(links_, {});
  if (launched_) {
    const MeetingPlace place = find_meeting_place(*launched_, process_environment);
    links = models::meet({.host = place.host,
                          .port = place.port,
                          .is_kept = place.is_kept,
                          .is_one_host = place.is_one_host,
                          .run = place.run,
                          .secret = place.secret},
                         rank_, size_, limits_);
  }
  try {
    auto control = models::SocketGroup::connect(rank_, std::move(links), name_, limits_);
    const std::lock_guard lock(mutex_);
    control_ = std::move(control);
  } catch (const Error&) {
    std::unique_lock lock(mutex_);  // how a child ended is known a little after that it did
    leaving_changed_.wait_for(lock, std::chrono::milliseconds(500), [this] { return !early_death_.empty(); });
    if (early_death_.empty()) throw;
    throw run_failure(early_death_, "see what ended it, then run the same command again");
  }
  if (!early_death_.empty()) control_->abort(early_death_);
  end_call_ = control_->when_ended([this] { watch_over_the_end(); });
}

/// In a thread of the group's. Ranks that write nothing end at once: they may wait for a GPU that is not coming back.
void World::watch_over_the_end() {
  ErrorKind kind = ErrorKind::failed;
  std::string words;
  try {
    control_->check();
  } catch (const Error& error) {
    kind = error.kind();
    words = std::string(kind == ErrorKind::cancelled ? "\ninterrupted: " : "\nerror: ") + one_line(error.what()) +
            "\n  remedy: " + indented_lines(as_called(error.remedy()));
  }
  if (rank_ > 0) _exit(models::exit_code(kind));
  std::unique_lock lock(mutex_);
  leaving_changed_.wait(lock, [this] { return leaving_ || needs_others_; });
  if (leaving_changed_.wait_for(lock, kToEnd, [this] { return leaving_ || (outlives_ && !needs_others_); })) return;
  std::cerr << words << std::endl;
  models::Temporary::remove_all();
  pass_on_last_words();
  _exit(models::exit_code(kind));
}

void World::need_others(bool need) {
  {
    const std::lock_guard lock(mutex_);
    needs_others_ = need;
  }
  leaving_changed_.notify_all();
}

void World::child_died(int64_t rank, const std::string& how) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it may have said why: that comes by a socket
  const std::lock_guard lock(mutex_);
  if (leaving_ || how.empty()) return;
  if (control_)
    control_->blame(rank, how);
  else
    early_death_ = "rank " + std::to_string(rank) + " (" + devices_.at(static_cast<size_t>(rank)) + ") " + how;
  leaving_changed_.notify_all();
}

std::string World::group_id() const {
  const bool is_nccls = has_gpu() && !sockets_;
  return is_nccls && !begun_group_.valid() ? models::NcclGroup::new_id() : "";
}

void World::begin_group(const std::string& id, int64_t passes) {
  if (id.empty()) return;
  models::NcclGroup::set_environment();
  const auto make = [control = control_, device = models::resolve_device(device_), id, passes] {
    const c10::InferenceMode guard;
    auto group = models::NcclGroup::connect(control, device, id);
    group->prepare(models::splits_of_shares(control->size(), passes));
    return std::shared_ptr<models::Group>(std::move(group));
  };
  begun_group_ = std::async(std::launch::async, make).share();
}

models::Group& World::group() {
  if (!group_) {
    group_ = begun_group_.valid() ? begun_group_.get() : control_;
    if (meter_ != nullptr) group_ = std::make_shared<models::MeteredGroup>(std::move(group_), *meter_);
  }
  return *group_;
}

void World::check() const {
  if (needs_others_) control_->check();
}

void World::end(const Error& error) noexcept {
  if (!control_) return;
  try {
    control_->check();
    failed_here_ = true;
  } catch (const Error& known) {
    failed_here_ = failed_here_ || std::string_view(known.what()) != error.what();
  }
  if (outlives_) need_others(false);  // what follows is no work of theirs
  control_->end(error, is_sound(device_));
}

void World::finish() {
  finished_ = true;
  if (rank_ > 0) return;
  try {
    tell(*control_, {{"what", "end"}});
  } catch (const Error&) {  // one is gone, but the videos are there
  }
}

}  // namespace sparsereel::app
