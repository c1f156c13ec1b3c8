// Ranks tell each other through the control group where their memory is. Each rank's memory begins with the signals of
// all ranks. Two regions for additions follow, which alternate, because others may still read the numbers of the last
// addition. The window comes last.
#include "models/parallel/peer_windows.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#include "attention/cuda_binding.h"
#include "models/parallel/cuda/peer_memory.h"
#include "models/store/weights/device.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kSignalBytes = 256;  // keeps what follows aligned
static_assert(kSignalBytes >= cuda::kMaxPeers * static_cast<int64_t>(sizeof(uint32_t)));

struct ProcessId {
  std::array<char, 40> boot{};  // the host's boot id; zeros if unknown
  int64_t process = 0;
};

ProcessId this_place() {
  ProcessId here{.boot = {}, .process = getpid()};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(here.boot.data(), here.boot.size() - 1);
  return here;
}

/// Gathers values by rank. T must be plain bytes.
template <typename T>
std::vector<T> gathered(T own, SocketGroup& control) {
  const auto as_tensor = [](T& each) { return at::from_blob(&each, {sizeof(T)}, at::kByte); };
  std::vector<T> all(static_cast<size_t>(control.size()));
  std::vector<at::Tensor> received;
  for (T& each : all) received.push_back(as_tensor(each));
  control.all_gather(as_tensor(own), received);
  return all;
}

/// Returns true if all ranks are different processes of one host.
bool are_processes_of_a_host(const std::vector<ProcessId>& places) {
  std::set<int64_t> processes;
  for (const ProcessId& each : places) {
    processes.insert(each.process);
    if (each.boot != places.front().boot || each.boot == ProcessId{}.boot) return false;
  }
  return processes.size() == places.size();
}

}  // namespace

struct PeerWindows::Offer {
  int64_t is_good = 0;
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
  std::byte* own = peers_[static_cast<size_t>(control_.rank())].memory;
  if (own == nullptr || !(are_others_gone_ || control_.are_others_gone())) return;
  cuda::free_memory_for_peers(own);
  count_memory_of_driver(device_, -all_bytes());
}

std::unique_ptr<PeerWindows> PeerWindows::make(SocketGroup& control, c10::Device device, int64_t bytes,
                                               at::Tensor ended, std::function<void()> waited) {
  if (control.size() > cuda::kMaxPeers || !are_processes_of_a_host(gathered(this_place(), control))) return nullptr;
  const c10::DeviceGuard guard(device);
  auto windows =
      std::unique_ptr<PeerWindows>(new PeerWindows(control, device, bytes, std::move(ended), std::move(waited)));
  const std::vector<Offer> offers = gathered(windows->offer(), control);
  int64_t fails = windows->reach(offers) ? 0 : 1;
  control.all_reduce_max(at::from_blob(&fails, {1}, at::kLong));
  if (fails == 0) return windows;
  windows->close();
  return nullptr;
}

void PeerWindows::leave_others() {
  cuda::wait_for_device();
  for (Peer& peer : peers_)
    if (std::exchange(peer.opened, false)) cuda::close_memory_of_peer(peer.memory);
}

/// Closes the memory of other processes. Memory that another process has opened must not be freed; without this call,
/// it stays allocated until the process ends.
void PeerWindows::close() {
  const c10::DeviceGuard guard(device_);
  leave_others();
  int64_t nothing = 0;
  control_.all_reduce_max(at::from_blob(&nothing, {1}, at::kLong));
  are_others_gone_ = true;
}

PeerWindows::Offer PeerWindows::offer() {
  Offer own;
  void* memory = nullptr;
  const auto bytes = static_cast<size_t>(all_bytes());
  const char* problem = cuda::allocate_for_peers(bytes, &memory, &own.handle);
  if (problem != nullptr) {  // libtorch may hold unused memory: free that and try again
    give_back_kept_memory(device_);
    problem = cuda::allocate_for_peers(bytes, &memory, &own.handle);
  }
  peers_[static_cast<size_t>(control_.rank())].memory = static_cast<std::byte*>(memory);
  own.is_good = problem == nullptr ? 1 : 0;
  if (problem == nullptr) count_memory_of_driver(device_, all_bytes());
  return own;
}

/// Returns the bytes of one region for additions.
int64_t PeerWindows::bytes_of_slots() const {
  return control_.size() * cuda::kMaxAdded * static_cast<int64_t>(sizeof(int64_t));
}

/// Returns the size in bytes of the memory that this rank shares with the other ranks.
int64_t PeerWindows::all_bytes() const {
  return kSignalBytes + 2 * bytes_of_slots() + bytes_;
}

bool PeerWindows::reach(const std::vector<Offer>& offers) {
  if (!std::ranges::all_of(offers, [](const Offer& each) { return each.is_good != 0; })) return false;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (static_cast<int64_t>(rank) == control_.rank()) continue;
    void* memory = nullptr;
    if (cuda::open_memory_of_peer(offers[rank].handle, &memory) != nullptr) return false;
    peer = {.memory = static_cast<std::byte*>(memory), .opened = true};
  }
  return true;
}

at::Tensor PeerWindows::of(int64_t rank) const {
  // The tensor is on this rank's device, because only that device's kernels use it.
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
