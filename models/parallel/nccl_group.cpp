// Maps the calls of a group to NCCL.
#include "models/parallel/nccl_group.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <system_error>
#include <utility>

namespace sparsereel::models {
namespace {

using nccl::Result;

nccl::DataType data_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return nccl::DataType::float32;
    case at::kHalf:
      return nccl::DataType::float16;
    case at::kBFloat16:
      return nccl::DataType::bfloat16;
    case at::kLong:
      return nccl::DataType::int64;
    case at::kByte:
      return nccl::DataType::uint8;
    default:
      throw run_failure("a tensor to exchange between ranks is not of fp32, fp16, bf16, int64 or uint8",
                        "this is a bug in sparsereel: report it with the command line");
  }
}

/// Returns true if the system has enough shared memory, which NCCL needs between GPUs without a direct link.
bool has_shared_memory() {
  constexpr uint64_t kEnough = uint64_t{256} << 20;  // by default, containers have 64 MiB
  struct statvfs memory = {};
  return statvfs("/dev/shm", &memory) == 0 && uint64_t{memory.f_bavail} * memory.f_frsize >= kEnough;
}

size_t count_of(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.numel());
}

}  // namespace

void NcclGroup::set_environment() {
  setenv("NCCL_NVLS_ENABLE", "0", /*replace=*/0);  // NOLINT(concurrency-mt-unsafe): as the header says
  // By default, NCCL takes buffers from CUDA's virtual memory, which four GPUs need 2.7 s longer to map. Without them,
  // NCCL needs shared memory.
  if (has_shared_memory()) setenv("NCCL_CUMEM_ENABLE", "0", /*replace=*/0);  // NOLINT(concurrency-mt-unsafe): as above
  // Otherwise the output of NCCL_DEBUG goes to standard output, in the middle of reports. If stderr is an ordinary
  // file, leave the variable unset, because NCCL would truncate the file.
  struct stat errors = {};
  if (fstat(STDERR_FILENO, &errors) == 0 && !S_ISREG(errors.st_mode))
    setenv("NCCL_DEBUG_FILE", "/dev/stderr", /*replace=*/0);  // NOLINT(concurrency-mt-unsafe): as above
}

std::string NcclGroup::new_id() {
  set_environment();
  nccl::UniqueId id;
  if (nccl::library().get_unique_id(&id) != Result::success)
    throw run_failure("NCCL finds no network to connect the ranks", "set NCCL_DEBUG=WARN for details");
  return {id.bytes.begin(), id.bytes.end()};
}

std::shared_ptr<NcclGroup> NcclGroup::connect(std::shared_ptr<SocketGroup> control, c10::Device device) {
  set_environment();
  std::string id = control->rank() == 0 ? new_id() : std::string(nccl::UniqueId{}.bytes.size(), '\0');
  control->broadcast(at::from_blob(id.data(), {static_cast<int64_t>(id.size())}, at::kByte), 0);
  return connect(std::move(control), device, id);
}

std::shared_ptr<NcclGroup> NcclGroup::connect(std::shared_ptr<SocketGroup> control, c10::Device device,
                                              const std::string& id) {
  nccl::UniqueId unique;
  if (id.size() != unique.bytes.size())
    throw run_failure("rank 0 sent no NCCL id", "this is a bug in sparsereel: report it with the command line");
  std::ranges::copy(id, unique.bytes.begin());
  auto communicator = std::make_unique<NcclCommunicator>(*control, device);
  communicator->begin([&](const nccl::Library& library, nccl::Communicator** made) {
    nccl::Config config;
    return library.init_rank(made, static_cast<int>(control->size()), unique, static_cast<int>(control->rank()),
                             &config);
  });
  return std::shared_ptr<NcclGroup>(new NcclGroup(std::move(control), device, std::move(communicator)));
}

NcclGroup::NcclGroup(std::shared_ptr<SocketGroup> control, c10::Device device,
                     std::unique_ptr<NcclCommunicator> communicator)
    : control_(std::move(control)), device_(device), communicator_(std::move(communicator)) {}

/// Destroys the groups that split() made. Does so in parallel, because NCCL takes 0.3 s for each.
NcclGroup::~NcclGroup() {
  std::vector<std::future<void>> farewells;
  try {
    for (auto& part : parts_) farewells.push_back(std::async(std::launch::async, [&part] { part.second.reset(); }));
  } catch (const std::system_error&) {  // no thread can be had; the map destroys the rest
  }
  windows_.reset();  // may wait for a dead rank, until the communicator's watcher notices
  communicator_.reset();
}

void NcclGroup::check_tensors(std::span<const at::Tensor> tensors) const {
  if (static_cast<int64_t>(tensors.size()) != size())
    throw run_failure(
        "a call of " + std::to_string(size()) + " ranks has " + std::to_string(tensors.size()) + " tensors",
        "this is a bug in sparsereel: report it with the command line");
  for (const at::Tensor& tensor : tensors)
    if (!tensor.is_contiguous() || tensor.device() != device_)
      throw run_failure("a tensor to exchange between ranks is not contiguous, or not on this rank's GPU",
                        "this is a bug in sparsereel: report it with the command line");
}

void NcclGroup::all_to_all(std::span<const at::Tensor> send, std::span<const at::Tensor> receive) {
  check_tensors(send);
  check_tensors(receive);
  const auto own = static_cast<size_t>(rank());
  receive[own].copy_(send[own]);
  communicator_->enqueue(
      [&](const nccl::Library& library, nccl::Communicator* all, nccl::Stream stream, const auto& add) {
        for (size_t i = 0; i < send.size(); ++i) {
          const auto peer = static_cast<int>(i);
          if (i == own) continue;
          if (send[i].numel() > 0)
            add(library.send(send[i].const_data_ptr(), count_of(send[i]), data_type(send[i]), peer, all, stream));
          if (receive[i].numel() > 0)
            add(library.receive(receive[i].mutable_data_ptr(), count_of(receive[i]), data_type(receive[i]), peer, all,
                                stream));
        }
      });
}

void NcclGroup::all_gather(const at::Tensor& send, std::span<const at::Tensor> receive) {
  all_to_all(std::vector<at::Tensor>(static_cast<size_t>(size()), send), receive);
}

void NcclGroup::all_reduce(const at::Tensor& tensor, nccl::Operation operation) {
  check_tensors(std::vector<at::Tensor>(static_cast<size_t>(size()), tensor));
  if (tensor.numel() == 0) return;
  void* data = tensor.mutable_data_ptr();
  communicator_->enqueue(
      [&](const nccl::Library& library, nccl::Communicator* all, nccl::Stream stream, const auto& add) {
        add(library.all_reduce(data, data, count_of(tensor), data_type(tensor), operation, all, stream));
      });
}

void NcclGroup::all_reduce_sum(const at::Tensor& tensor) {
#ifdef SPARSEREEL_CUDA
  check_tensors(std::vector<at::Tensor>(static_cast<size_t>(size()), tensor));
  if (windows_ && static_cast<PeerWindows&>(*windows_).add_up(tensor)) return;
#endif
  all_reduce(tensor, nccl::Operation::sum);
}

void NcclGroup::all_reduce_max(const at::Tensor& tensor) {
  all_reduce(tensor, nccl::Operation::max);
}

void NcclGroup::broadcast(const at::Tensor& tensor, int64_t root) {
  check_tensors(std::vector<at::Tensor>(static_cast<size_t>(size()), tensor));
  if (tensor.numel() == 0) return;
  void* data = tensor.mutable_data_ptr();
  communicator_->enqueue(
      [&](const nccl::Library& library, nccl::Communicator* all, nccl::Stream stream, const auto& add) {
        add(library.broadcast(data, data, count_of(tensor), data_type(tensor), static_cast<int>(root), all, stream));
      });
}

std::shared_ptr<Group> NcclGroup::split(int64_t color) {
  return part(control_->colors(color));
}

/// Returns this rank's group of a split with these colors, and makes it at the first call. All ranks make the same
/// splits, so either all ranks find the group in the map, or none does.
std::shared_ptr<NcclGroup> NcclGroup::part(const std::vector<int64_t>& colors) {
  std::shared_ptr<NcclGroup>& known = parts_[colors];
  if (known) return known;
  std::shared_ptr<SocketGroup> control = control_->part(colors);
  auto communicator = std::make_unique<NcclCommunicator>(*control, device_);
  // NCCL's colors are 32-bit and not negative, so the number of the part's first rank serves as its color.
  const auto first = std::ranges::find(colors, colors[static_cast<size_t>(rank())]) - colors.begin();
  communicator_->split_into(*communicator, static_cast<int>(first), static_cast<int>(rank()));
  known.reset(new NcclGroup(std::move(control), device_, std::move(communicator)));
  return known;
}

void NcclGroup::prepare(const std::vector<std::vector<int64_t>>& splits) {
  const c10::impl::VirtualGuardImpl gpu(device_.type());
  const c10::StreamGuard own(gpu.getStreamFromGlobalPool(device_));
  prepare_calls();
  for (const std::vector<int64_t>& colors : splits) part(colors)->prepare_calls();
}

/// Makes one call of each kind, to set up NCCL's channels to all ranks and for reductions. Waits for the calls, because
/// a communicator may only be split while it is idle.
void NcclGroup::prepare_calls() {
  const auto one = [this] { return at::zeros({1}, at::TensorOptions().dtype(at::kLong).device(device_)); };
  std::vector<at::Tensor> receive(static_cast<size_t>(size()));
  for (at::Tensor& each : receive) each = one();
  all_gather(one(), receive);
  for (const auto call : {&NcclGroup::all_reduce_sum, &NcclGroup::all_reduce_max}) (this->*call)(receive.front());
  broadcast(receive.front(), 0);
  c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).synchronize();
  control_->check();
}

Windows* NcclGroup::windows(int64_t bytes, [[maybe_unused]] at::Device device) {
  if (bytes <= window_bytes_) return windows_.get();
  close_windows();
#ifdef SPARSEREEL_CUDA
  windows_ = PeerWindows::make(*control_, device_, bytes, communicator_->ended(), [this] {
    communicator_->look_behind(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  });
#endif
  window_bytes_ = bytes;
  return windows_.get();
}

void NcclGroup::close_windows() {
  const std::unique_ptr<Windows> old = std::exchange(windows_, nullptr);
  window_bytes_ = 0;
  if (old) old->close();
}

void NcclGroup::abort(const std::string& reason) noexcept {
  control_->abort(reason);
}

}  // namespace sparsereel::models
