// Ranks tell each other by the control group where their memory is. Each begins with the signals of all, and with what
// they add up: in two places in turn, since others may still read the last numbers.
#include "models/parallel/peer_windows.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "attention/cuda_binding.h"
#include "models/parallel/cuda/peer_memory.h"
#include "models/weights/device.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kSignalBytes = 256;  // what follows stays aligned
static_assert(kSignalBytes >= cuda::kMaxPeers * static_cast<int64_t>(sizeof(uint32_t)));

/// The same in all processes of this host until it starts again; zeros: unknown.
std::array<char, 40> this_boot() {
  std::array<char, 40> name{};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(name.data(), name.size() - 1);
  return name;
}

}  // namespace

struct PeerWindows::Offer {
  int64_t is_good = 0;
  int64_t process = 0;
  std::array<char, 40> boot{};
  cuda::MemoryHandle handle;
};

PeerWindows::PeerWindows(SocketGroup& control, c10::Device device, int64_t bytes, at::Tensor ended,
                         std::function<void()> waited)
    : control_(control),
      device_(device),
      bytes_(bytes),
      ended_(std::move(ended)),
      waited_(std::move(waited)),
      peers_(static_cast<size_t>(control.size())) {}

PeerWindows::~PeerWindows() {
  const c10::DeviceGuard guard(device_);
  leave_others();
  cuda::free_memory_for_peers(peers_[static_cast<size_t>(control_.rank())].memory);
}

std::unique_ptr<PeerWindows> PeerWindows::make(SocketGroup& control, c10::Device device, int64_t bytes,
                                               at::Tensor ended, std::function<void()> waited) {
  const c10::DeviceGuard guard(device);
  auto windows =
      std::unique_ptr<PeerWindows>(new PeerWindows(control, device, bytes, std::move(ended), std::move(waited)));
  Offer own;
  own.is_good = windows->offer(own) ? 1 : 0;
  const auto as_tensor = [](Offer& offer) { return at::from_blob(&offer, {sizeof(Offer)}, at::kByte); };
  std::vector<Offer> offers(static_cast<size_t>(control.size()));
  std::vector<at::Tensor> received;
  for (Offer& each : offers) received.push_back(as_tensor(each));
  control.all_gather(as_tensor(own), received);
  int64_t fails = windows->reach(offers) ? 0 : 1;
  control.all_reduce_max(at::from_blob(&fails, {1}, at::kLong));
  return fails == 0 ? std::move(windows) : nullptr;
}

void PeerWindows::leave_others() {
  cuda::wait_for_device();
  for (Peer& peer : peers_)
    if (std::exchange(peer.opened, false)) cuda::close_memory_of_peer(peer.memory);
}

/// What another process has opened is not to be freed.
void PeerWindows::close() {
  const c10::DeviceGuard guard(device_);
  leave_others();
  int64_t nothing = 0;
  control_.all_reduce_max(at::from_blob(&nothing, {1}, at::kLong));
}

/// False where this rank has no memory for others.
bool PeerWindows::offer(Offer& own) {
  own.process = getpid();
  own.boot = this_boot();
  if (std::ssize(peers_) > cuda::kMaxPeers) return false;
  void* memory = nullptr;
  const auto bytes = static_cast<size_t>(kSignalBytes + 2 * bytes_of_slots() + bytes_);
  const char* problem = cuda::allocate_for_peers(bytes, &memory, &own.handle);
  if (problem != nullptr) {  // libtorch may have kept it
    give_back_kept_memory(device_);
    problem = cuda::allocate_for_peers(bytes, &memory, &own.handle);
  }
  peers_[static_cast<size_t>(control_.rank())].memory = static_cast<std::byte*>(memory);
  return problem == nullptr;
}

/// Of what all ranks add up.
int64_t PeerWindows::bytes_of_slots() const {
  return control_.size() * cuda::kMaxAdded * static_cast<int64_t>(sizeof(int64_t));
}

bool PeerWindows::reach(const std::vector<Offer>& offers) {
  const Offer& own = offers[static_cast<size_t>(control_.rank())];
  if (!std::ranges::all_of(offers, [&](const Offer& each) { return each.is_good != 0 && each.boot == own.boot; }))
    return false;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (static_cast<int64_t>(rank) == control_.rank()) continue;
    void* memory = nullptr;
    if (offers[rank].process == own.process || cuda::open_memory_of_peer(offers[rank].handle, &memory) != nullptr)
      return false;
    peer = {.memory = static_cast<std::byte*>(memory), .opened = true};
  }
  return true;
}

at::Tensor PeerWindows::of(int64_t rank) const {
  // Of this rank's device, whose kernels alone use it.
  return at::from_blob(
      peers_.at(static_cast<size_t>(rank)).memory + kSignalBytes + 2 * bytes_of_slots(), {bytes_}, [](void*) {},
      at::TensorOptions().dtype(at::kByte).device(device_), device_);
}

void PeerWindows::exchange(const std::function<void()>& put) {
  control_.check();
  put();
  const c10::DeviceGuard guard(device_);
  attention::check_launch(cuda::meet(next_round(), attention::current_stream(device_)), "meeting");
  waited_();
}

bool PeerWindows::add_up(const at::Tensor& numbers) {
  if (numbers.scalar_type() != at::kLong || numbers.numel() > cuda::kMaxAdded) return false;
  control_.check();
  const c10::DeviceGuard guard(device_);
  cuda::Addition call = {.meeting = next_round(),
                         .slots = {},
                         .numbers = numbers.mutable_data_ptr<int64_t>(),
                         .count = static_cast<int>(numbers.numel())};
  const int64_t place = kSignalBytes + additions_++ % 2 * bytes_of_slots();
  for (size_t rank = 0; rank < peers_.size(); ++rank)
    call.slots[rank] = reinterpret_cast<int64_t*>(peers_[rank].memory + place);
  attention::check_launch(cuda::add_up(call, attention::current_stream(device_)), "addition");
  waited_();
  return true;
}

cuda::Meeting PeerWindows::next_round() {
  cuda::Meeting call = {.signals = {},
                        .ranks = static_cast<int>(control_.size()),
                        .rank = static_cast<int>(control_.rank()),
                        .round = ++round_,
                        .ended = ended_.const_data_ptr<int>()};
  for (size_t rank = 0; rank < peers_.size(); ++rank)
    call.signals[rank] = reinterpret_cast<uint32_t*>(peers_[rank].memory);
  return call;
}

}  // namespace sparsereel::models
