// The group of ranks that are processes, over sockets: all of it on CPUs, and what ranks of GPUs tell each other beside
// NCCL.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "hilbert/error.h"
#include "models/parallel/group.h"
#include "models/parallel/links.h"

namespace sparsereel::models {

class SocketMesh;

class SocketGroup final : public Group {
 public:
  /// links: to each rank, owned from here on. `name`: of this rank's card, "cuda:1", for messages. Throws Error naming
  /// a rank that has not come within limits.start.
  static std::shared_ptr<SocketGroup> connect(int64_t rank, std::vector<Link> links, const std::string& name,
                                              const GroupLimits& limits = {});

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return static_cast<int64_t>(members_.size()); }
  // Of these, tensors on a GPU pass through the host's memory.
  void all_to_all(std::span<const at::Tensor> send, std::span<const at::Tensor> receive) override;
  void all_gather(const at::Tensor& send, std::span<const at::Tensor> receive) override;
  void all_reduce_sum(const at::Tensor& tensor) override;
  void all_reduce_max(const at::Tensor& tensor) override;
  void broadcast(const at::Tensor& tensor, int64_t root) override;
  /// Of the same sockets: what ends a part ends the whole.
  std::shared_ptr<Group> split(int64_t color) override;
  Windows* windows(int64_t /*bytes*/, at::Device /*device*/) override { return nullptr; }
  void close_windows() override {}
  /// Its two halves: what all ranks gave, and the group of those that gave the same as this one, without any exchange.
  std::vector<int64_t> colors(int64_t color);
  std::shared_ptr<SocketGroup> part(std::span<const int64_t> colors) const;
  void abort(const std::string& reason) noexcept override;

  /// abort() with this error's kind and remedy. sound: this rank could go on, with other work.
  void end(const Error& error, bool sound = false) noexcept;
  /// The same where it is another rank that is to blame, by its number here: it ended, or does not answer.
  void blame(int64_t rank, const std::string& what_it_did) noexcept;
  /// As broadcast(), for as long as it takes `root` to call it.
  void wait_for(const at::Tensor& tensor, int64_t root);
  // From any thread, as all below.
  void check() const override;
  bool ended() const noexcept;
  /// The rank that ended it said that it is sound.
  bool ended_soundly() const noexcept;
  /// Of those that have left as all do at the end; a rank that still waits for it waits in vain.
  std::optional<int64_t> who_left() const;
  /// Returns true if all other processes have closed their sockets, as their end does: what they shared with this one
  /// is this one's alone.
  bool are_others_gone() const;
  /// Of the rank's card, as messages name it: "rank 1 (cuda:1)".
  std::string describe(int64_t rank) const;
  const GroupLimits& limits() const;
  /// `call` runs once, in a thread of the group's, when that ends other than by all leaving, or has. Returns the number
  /// to forget it by; after forget() it neither runs nor will.
  int64_t when_ended(std::function<void()> call);
  void forget(int64_t number) noexcept;

 private:
  using Bytes = std::span<const at::Tensor>;
  SocketGroup(std::shared_ptr<SocketMesh> mesh, std::vector<int64_t> members);
  void check_count(std::span<const at::Tensor> tensors) const;
  void exchange(Bytes send, Bytes receive, std::chrono::milliseconds limit);
  void broadcast(const at::Tensor& tensor, int64_t root, std::chrono::milliseconds limit);
  std::vector<at::Tensor> gathered(const at::Tensor& tensor);

  std::shared_ptr<SocketMesh> mesh_;
  std::vector<int64_t> members_;  // their numbers in the mesh
  int64_t rank_ = 0;              // this process's place among them
};

}  // namespace sparsereel::models
