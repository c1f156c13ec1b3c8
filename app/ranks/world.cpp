// Rank 0 starts the other ranks' processes and gives them connected sockets. A started rank reads the sockets' numbers
// from its environment. Ranks that a launcher started connect by TCP.
#include "app/ranks/world.h"

#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "app/ranks/asked_ranks.h"
#include "models/parallel/patience.h"
#include "models/parallel/rendezvous.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

bool is_a_gpu(const std::string& device) {
  return device.starts_with("cuda");
}

/// Returns false if the GPU is broken. After a GPU's first failure every query fails, so a single query shows it. Does
/// not wait for running work, which may wait for other ranks.
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

std::unique_ptr<World> World::find(const Settings& settings, std::map<std::string, std::string> given) {
  const auto launched = find_launched(process_environment);
  const std::optional<int64_t> gpus = settings.whole("gpus");
  const std::string device = settings.text("device", "auto");
  if (launched && launched->size > 1 && gpus != 1) {
    if (gpus)
      throw bad_option(
          "gpus",
          std::to_string(*gpus) + " cannot be used here: " + launched->source + " has started " +
              std::to_string(launched->size) + " ranks",
          "leave out --gpus: each rank takes a GPU; or give 1, so that each process makes a video of its own");
    std::unique_ptr<World> world(new World(World::launched(*launched, device)));
    world->given_ = std::move(given);
    return world;
  }
  const int64_t count = gpus.value_or(1);
  if (count == 1 && !find_group_choice(process_environment).of_one) return nullptr;
  return start(devices_of_ranks_here(count, device));
}

std::unique_ptr<World> World::start(std::vector<std::string> devices) {
  RankPlace place{.size = std::ssize(devices),
                  .ranks_here = std::ssize(devices),
                  .device = devices.front(),
                  .name = devices.front()};
  place.devices = std::move(devices);
  std::unique_ptr<World> world(new World(std::move(place)));
  world->start_children();
  return world;
}

void World::start_children() {
  auto links = models::local_links(size());
  place_.links = links.front();
  const auto close_others = [&] {
    for (size_t rank = 1; rank < links.size(); ++rank) models::close_links(links[rank]);
  };
  try {
    children_ = std::make_unique<Children>(links, place_.devices);
  } catch (...) {
    close_others();
    throw;
  }
  close_others();
  children_->watch([this](int64_t rank, const std::string& how) {
    const std::string& device = place_.devices.at(static_cast<size_t>(rank));
    watch_.child_died(rank, "rank " + std::to_string(rank) + " (" + device + ")", how);
  });
}

World::World(RankPlace place)
    : place_(std::move(place)), limits_(find_group_limits(process_environment)), watch_(place_.rank) {}

World::World(const StartedRank& started)
    : World(RankPlace{.rank = started.rank,
                      .size = std::ssize(started.links),
                      .ranks_here = std::ssize(started.links),
                      .device = started.device,
                      .name = started.device,
                      .links = started.links}) {}

World::RankPlace World::launched(const Launched& launched, const std::string& device) {
  RankPlace place{.rank = launched.rank, .size = launched.size, .device = device, .launched = launched};
  if ((device == "auto" || device == "cuda") && models::cuda_available()) {
    const auto count = std::max<int64_t>(at::detail::getCUDAHooks().deviceCount(), 1);
    place.device = "cuda:" + std::to_string(launched.local_rank.value_or(launched.rank) % count);
  }
  place.name = (place.device == "auto" ? "cpu" : place.device) + " of " + models::host_name();
  return place;
}

World::~World() {
  watch_.leave();
  if (control_ && !finished_) control_->abort("left before the end");
  if (children_ && !control_) models::close_links(place_.links);  // shows the children that this rank will not connect
  if (children_ && control_ && control_->ended()) end_others();
  group_.reset();
  children_.reset();  // before control_, which the thread of children_ may use
}

/// Ends the other ranks after a failure, and waits until they are gone. The memory that this rank's GPU shares with
/// them can be freed only then; otherwise a set would lose this memory for each row that fails.
void World::end_others() {
  children_.reset();
  models::Patience patience{std::chrono::seconds(1)};  // the system reports their closed sockets with a delay
  while (!control_->are_others_gone() && patience.step().count() > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool World::has_gpu() const {
  return is_a_gpu(device());
}

int World::threads() const {
  return has_gpu() ? at::get_num_threads() : threads_of_each(ranks_here());
}

std::vector<models::Link> World::meet() {
  if (!place_.launched) return std::exchange(place_.links, {});
  const MeetingPlace meeting = find_meeting_place(*place_.launched, process_environment);
  return models::meet({.host = meeting.host,
                       .port = meeting.port,
                       .is_kept = meeting.is_kept,
                       .is_one_host = meeting.is_one_host,
                       .run = meeting.run,
                       .secret = meeting.secret},
                      rank(), size(), limits_);
}

void World::connect() {
  std::vector<models::Link> links = meet();
  try {
    control_ = models::SocketGroup::connect(rank(), std::move(links), place_.name, limits_);
  } catch (const Error&) {
    const std::string death = watch_.early_death();
    if (death.empty()) throw;
    throw run_failure(death, "read its messages and those of dmesg, then run the same command again");
  }
  group_ = std::make_unique<RankGroup>(control_, device(), find_group_choice(process_environment).sockets);
  watch_.connected(control_);
}

void World::need_others(bool need) {
  if (need)
    watch_.work();
  else
    watch_.rest();
}

void World::check() const {
  if (watch_.is_working()) control_->check();
}

void World::end(const Error& error) noexcept {
  if (!control_) return;
  try {
    control_->check();
    failed_here_ = true;
  } catch (const Error& known) {
    failed_here_ = failed_here_ || std::string_view(known.what()) != error.what();
  }
  if (outlives_) watch_.rest();  // what follows does not need the other ranks
  control_->end(error, is_sound(device()));
}

void World::finish() {
  finished_ = true;
  if (rank() > 0) return;
  try {
    models::send_end(*this);
  } catch (const Error&) {  // a rank is gone, but the videos exist
  }
}

}  // namespace sparsereel::app
