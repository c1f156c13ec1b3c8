// A call shows its tensors to the other ranks, waits for their calls, reads their tensors, and waits until all ranks
// have read.
#include "models/parallel/thread_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "hilbert/error.h"
#include "models/parallel/patience.h"

namespace sparsereel::models {
namespace {

constexpr const char* kRemedy = "run it again: the work done so far is lost";

/// Shared by a group and all groups split from it, which end together.
struct Fate {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> ended;  // why they have ended; unset until then
  std::set<int64_t> gone;            // ranks that have left
};

/// The meeting point of the ranks of one group.
struct Meeting {
  std::shared_ptr<Fate> fate;
  std::chrono::milliseconds limit{};
  std::vector<int64_t> names;                   // each rank's number in the original group
  std::vector<const void*> shown;               // by rank: what the rank shows to the others in a call
  std::vector<uint8_t> here;                    // by rank: 1 while the rank waits for the others
  std::vector<at::Tensor> windows;              // by rank: the rank's window
  int64_t round = 0;                            // number of completed meetings
  std::vector<std::shared_ptr<Meeting>> split;  // by rank: the meeting to which the rank belongs after a split

  size_t size() const { return names.size(); }
  std::string name(size_t rank) const { return "rank " + std::to_string(names[rank]); }
  std::optional<size_t> first_missing() const {
    const auto found = std::ranges::find(here, uint8_t{0});
    return found == here.end() ? std::nullopt : std::optional(static_cast<size_t>(found - here.begin()));
  }
};

std::shared_ptr<Meeting> make_meeting(std::shared_ptr<Fate> fate, std::chrono::milliseconds limit,
                                      std::vector<int64_t> names) {
  auto meeting = std::make_shared<Meeting>();
  meeting->fate = std::move(fate);
  meeting->limit = limit;
  meeting->shown.resize(names.size());
  meeting->here.resize(names.size());
  meeting->windows.resize(names.size());
  meeting->split.resize(names.size());
  meeting->names = std::move(names);
  return meeting;
}

using Tensors = std::span<const at::Tensor>;

class ThreadGroup final : public Group {
 public:
  ThreadGroup(std::shared_ptr<Meeting> meeting, size_t rank, bool is_whole)
      : meeting_(std::move(meeting)), rank_(rank), is_whole_(is_whole) {}
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;
  ~ThreadGroup() override {
    if (!is_whole_) return;  // a rank leaves with the whole group; it may destroy a split group earlier
    const std::lock_guard lock(fate().mutex);
    fate().gone.insert(meeting_->names[rank_]);
    fate().changed.notify_all();
  }

  int64_t rank() const override { return static_cast<int64_t>(rank_); }
  int64_t size() const override { return static_cast<int64_t>(meeting_->size()); }

  void all_to_all(Tensors send, Tensors receive) override {
    exchange(&send, [&] {
      for (size_t i = 0; i < receive.size(); ++i) copy(receive[i], shown<Tensors>(i)[rank_]);
    });
  }
  void all_gather(const at::Tensor& send, Tensors receive) override {
    exchange(&send, [&] {
      for (size_t i = 0; i < receive.size(); ++i) copy(receive[i], shown<at::Tensor>(i));
    });
  }
  void all_reduce_sum(const at::Tensor& tensor) override {
    reduce(tensor, [](const at::Tensor& sum, const at::Tensor& next) { sum.add_(next); });
  }
  void all_reduce_max(const at::Tensor& tensor) override {
    reduce(tensor,
           [](const at::Tensor& most, const at::Tensor& next) { at::maximum_out(tensor_of(most), most, next); });
  }
  void broadcast(const at::Tensor& tensor, int64_t root) override {
    exchange(&tensor, [&] {
      if (root != rank()) copy(tensor, shown<at::Tensor>(static_cast<size_t>(root)));
    });
  }

  std::shared_ptr<Group> split(int64_t color) override {
    exchange(&color, [&] {
      if (rank_ == 0) assign_splits();
    });
    const auto mine = std::exchange(meeting_->split[rank_], nullptr);
    const auto place = std::ranges::find(mine->names, meeting_->names[rank_]);
    return std::make_shared<ThreadGroup>(mine, static_cast<size_t>(place - mine->names.begin()),
                                         /*is_whole=*/false);
  }

  Windows* windows(int64_t bytes, at::Device device) override {
    const at::Tensor& own = meeting_->windows[rank_];
    if (!own.defined() || own.numel() < bytes)
      exchange(nullptr, [&] { meeting_->windows[rank_] = at::empty({bytes}, at::device(device).dtype(at::kByte)); });
    return &windows_;
  }
  void close_windows() override { meeting_->windows[rank_].reset(); }

  void abort(const std::string& reason) noexcept override {
    const std::lock_guard lock(fate().mutex);
    end(meeting_->name(rank_) + ": " + reason);
  }

 private:
  class MemoryOfAll final : public Windows {
   public:
    explicit MemoryOfAll(ThreadGroup& group) : group_(group) {}
    at::Tensor of(int64_t rank) const override { return group_.meeting_->windows.at(static_cast<size_t>(rank)); }
    void exchange(const std::function<void()>& put) override {
      put();
      group_.meet(nullptr);
    }

   private:
    ThreadGroup& group_;
  };

  static at::Tensor& tensor_of(const at::Tensor& tensor) { return const_cast<at::Tensor&>(tensor); }
  Fate& fate() const { return *meeting_->fate; }

  /// Requires the mutex of fate().
  void end(const std::string& why) const noexcept {
    if (!fate().ended) fate().ended = why;
    fate().changed.notify_all();
  }

  template <typename T>
  const T& shown(size_t i) const {
    return *static_cast<const T*>(meeting_->shown[i]);
  }

  static void copy(const at::Tensor& to, const at::Tensor& from) {
    if (to.sizes() != from.sizes() || to.scalar_type() != from.scalar_type())
      throw run_failure("two ranks exchange tensors of different shapes or dtypes",
                        "this is a bug in sparsereel: report it with the command line");
    to.copy_(from);
  }

  template <typename Read>
  void exchange(const void* mine, const Read& read) {
    meet(mine);
    read();
    meet(mine);
  }

  /// Adds the ranks' tensors in the order of ranks, so that all ranks get the same bits.
  template <typename Add>
  void reduce(const at::Tensor& tensor, const Add& add) {
    meet(&tensor);
    const at::Tensor all = shown<at::Tensor>(0).clone();
    for (size_t i = 1; i < meeting_->size(); ++i) add(all, shown<at::Tensor>(i));
    meet(&tensor);
    tensor.copy_(all);
  }

  /// Waits until all ranks have called this. The other ranks can read `mine` afterwards.
  void meet(const void* mine) {
    Meeting& meeting = *meeting_;
    std::unique_lock lock(fate().mutex);
    if (!fate().ended) {
      meeting.shown[rank_] = mine;
      meeting.here[rank_] = 1;
      if (!meeting.first_missing()) {
        std::ranges::fill(meeting.here, uint8_t{0});
        ++meeting.round;
        fate().changed.notify_all();
        return;
      }
      if (wait(lock)) return;
    }
    throw run_failure("a rank of this video has failed: " + *fate().ended, kRemedy);
  }

  /// Waits for the other ranks. Returns true once all ranks wait here, false if the group has ended.
  bool wait(std::unique_lock<std::mutex>& lock) const {
    const Meeting& meeting = *meeting_;
    const int64_t round = meeting.round;
    Patience patience(meeting.limit);
    while (meeting.round == round && !fate().ended) {
      for (size_t i = 0; i < meeting.size(); ++i)
        if (meeting.here[i] == 0 && fate().gone.contains(meeting.names[i])) end(meeting.name(i) + ": it has left");
      if (fate().ended) break;
      if (const auto left = patience.step(); left.count() > 0) {
        fate().changed.wait_for(lock, left);
        continue;
      }
      end(meeting.name(*meeting.first_missing()) + ": it did not arrive within " +
          std::to_string(meeting.limit.count()) + " ms");
    }
    return meeting.round != round;
  }

  void assign_splits() const {
    std::map<int64_t, std::vector<size_t>> ranks;  // by color
    for (size_t i = 0; i < meeting_->size(); ++i) ranks[shown<int64_t>(i)].push_back(i);
    for (const auto& [color, members] : ranks) {
      std::vector<int64_t> names;
      for (const size_t i : members) names.push_back(meeting_->names[i]);
      const auto meeting = make_meeting(meeting_->fate, meeting_->limit, names);
      for (const size_t i : members) meeting_->split[i] = meeting;
    }
  }

  std::shared_ptr<Meeting> meeting_;
  size_t rank_;
  bool is_whole_;  // true if this is not split from another group
  MemoryOfAll windows_{*this};
};

}  // namespace

std::vector<std::shared_ptr<Group>> make_thread_groups(int64_t size, std::chrono::milliseconds limit) {
  std::vector<int64_t> names(static_cast<size_t>(size));
  std::iota(names.begin(), names.end(), int64_t{0});
  const auto meeting = make_meeting(std::make_shared<Fate>(), limit, std::move(names));
  std::vector<std::shared_ptr<Group>> groups;
  for (size_t rank = 0; rank < meeting->size(); ++rank)
    groups.push_back(std::make_shared<ThreadGroup>(meeting, rank, /*is_whole=*/true));
  return groups;
}

void run_in_threads(int64_t size, const std::function<void(Group&)>& body, std::chrono::milliseconds limit) {
  std::vector<std::shared_ptr<Group>> groups = make_thread_groups(size, limit);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](std::shared_ptr<Group>& own) {
    // Destroyed when this thread ends, so that the other ranks learn that this rank has left.
    const std::shared_ptr<Group> group = std::exchange(own, nullptr);
    std::string reason = "an exception of unknown type";
    try {
      return body(*group);
    } catch (const std::exception& error) {
      reason = error.what();
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    group->abort(reason);
  };
  std::vector<std::thread> threads;
  threads.reserve(groups.size());
  for (std::shared_ptr<Group>& group : groups) threads.emplace_back(run, std::ref(group));
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace sparsereel::models
