// Every rank calls rank 0, which sends each of them a table of where all ranks listen. Then each rank calls the ranks
// with lower numbers, except rank 0.
#include "models/parallel/rendezvous.h"

#include <c10/util/Logging.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "models/parallel/rank_call.h"
#include "models/parallel/tcp.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMostLaunched = 1024;               // more ranks are a typing error
constexpr std::chrono::milliseconds kCallAgain{100};  // pause after a call that nobody answered

constexpr const char* kSameCommandRemedy = "find out why it did not start, and start all ranks with the same command";

/// The address at which a rank listens. It is sent as its bytes.
struct ListenerRecord {
  ShortText<64> host;     // host name
  ShortText<64> address;  // numeric address
  uint32_t port = 0;
};

/// Returns the result of `work`. Throws `late` when the limit is over; the work then goes on in a detached thread.
template <typename Work>
auto within(Patience& patience, Work work, const Error& late) {
  auto task = std::make_shared<std::packaged_task<decltype(work())()>>(std::move(work));
  auto result = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  for (;;) {
    const auto wait = patience.step();
    if (wait.count() == 0) throw Error(late);
    if (result.wait_for(wait) == std::future_status::ready) return result.get();
  }
}

/// A launcher's store, into which rank 0 writes a line that says where it listens. The store may still hold the line of
/// an earlier run.
class KeptStore {
 public:
  KeptStore(const Rendezvous& place, Patience& patience, std::chrono::milliseconds limit)
      : key_("sparsereel/" + place.run + "/rank 0"),
        silent_(problem(place, "it does not answer")),
        patience_(patience) {
    addresses_of_host(place.host, place.port);  // for an unknown host, throws one line in place of libtorch's many
#ifndef C10_USE_GLOG
    FLAGS_caffe2_log_level = c10::GLOG_FATAL;  // keeps libtorch from logging its attempts
#endif
    c10d::TCPStoreOptions options;
    options.port = place.port;
    options.waitWorkers = false;
    options.timeout = limit;
    try {
      store_ = within(
          patience_, [host = place.host, options] { return c10::make_intrusive<c10d::TCPStore>(host, options); },
          silent_);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      throw problem(place, text.substr(0, text.find('\n')));
    }
  }

  void write(const std::string& line) {
    ask([store = store_, key = key_, line] {
      store->set(key, std::vector<uint8_t>(line.begin(), line.end()));
      return std::string();
    });
  }
  /// Returns rank 0's line; empty if there is none yet.
  std::string read() {
    return ask([store = store_, key = key_] {
      if (!store->check({key})) return std::string();
      const std::vector<uint8_t> line = store->get(key);
      return std::string(line.begin(), line.end());
    });
  }

 private:
  static Error problem(const Rendezvous& place, const std::string& what) {
    return run_failure(
        "the ranks' meeting place cannot be reached at " + place.host + ":" + std::to_string(place.port) + ": " + what,
        "check that the launcher runs, and that MASTER_ADDR and MASTER_PORT name its host and port");
  }
  template <typename Work>
  std::string ask(Work work) {
    try {
      return within(patience_, std::move(work), silent_);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string text = error.what();
      throw run_failure("the launcher's store failed: " + text.substr(0, text.find('\n')), silent_.remedy());
    }
  }

  std::string key_;
  Error silent_;
  Patience& patience_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

class RanksMeeting {
 public:
  RanksMeeting(const Rendezvous& place, int64_t rank, int64_t size, const GroupLimits& limits)
      : place_(place),
        host_(place.is_one_host ? "127.0.0.1" : place.host),
        rank_(rank),
        size_(size),
        limits_(limits),
        patience_(limits.start),
        key_{.secret = place.secret, .run = place.run},
        seats_(static_cast<size_t>(size)) {
    if (place.is_kept) store_.emplace(place, patience_, limits.start);
    Listeners listeners = listen();
    own_ = {
        .host = ShortText<64>::of(host_name()), .address = ShortText<64>::of(listeners.host), .port = listeners.port};
    reception_.emplace(std::move(listeners.sockets), key_);
  }

  std::vector<Link> meet() {
    if (rank_ == 0) {
      if (store_) store_->write(line());
      receive_the_others();
      tell_all();
    } else {
      call_rank_0();
      hear_of_the_others();
      for (int64_t other = 1; other < rank_; ++other) call(other);
      receive_the_others();
    }
    std::vector<Link> links;
    for (Seat& seat : seats_) {
      if (seat.control.get() >= 0) notice_vanished_host(seat.control.get(), limits_.vanished);
      links.push_back({.data = seat.data.release(), .control = seat.control.release()});
    }
    return links;
  }

 private:
  struct Seat {
    ListenerRecord record;
    Socket data, control;
  };

  Seat& seat(int64_t rank) { return seats_[static_cast<size_t>(rank)]; }

  Listeners listen() const {
    const bool is_known_place = rank_ == 0 && !place_.is_kept;
    try {
      return listen_towards(host_, is_known_place ? place_.port : 0, SOMAXCONN);
    } catch (const Error& error) {
      if (!is_known_place) throw;
      throw run_failure("rank 0 cannot open the ranks' meeting place at " + where() + ": " + error.what(),
                        "set MASTER_ADDR to rank 0's host and MASTER_PORT to a free port there");
    }
  }

  std::string where() const { return host_ + ":" + std::to_string(place_.port); }

  std::string line() const { return own_.host.text() + " " + own_.address.text() + " " + std::to_string(own_.port); }

  RankClaim claim(bool is_control) const {
    return {.rank = static_cast<int32_t>(rank_),
            .size = static_cast<int32_t>(size_),
            .is_control = is_control ? 1 : 0,
            .port = own_.port,
            .host = own_.host,
            .address = own_.address};
  }

  /// Returns the addresses of a listener. A loopback address from another host comes from rank 0's host, where that
  /// host's own name stands for a loopback address. This rank then uses MASTER_ADDR, which names the same host.
  std::vector<TcpAddress> addresses_of(const ListenerRecord& there) const {
    const auto port = static_cast<uint16_t>(there.port);
    std::vector<TcpAddress> addresses = addresses_of_host(there.address.text(), port);
    const bool is_elsewhere = there.host.text() != own_.host.text();
    if (is_elsewhere && !addresses.empty() && is_loopback(addresses.front())) return addresses_of_host(host_, port);
    return addresses;
  }

  /// Looks up rank 0's address each time, because the store may still hold the address of an earlier run.
  std::vector<TcpAddress> addresses_of_rank_0() {
    if (!store_) return addresses_of_host(host_, place_.port);
    std::string host, address;
    uint16_t port = 0;
    if (std::istringstream text(store_->read()); !(text >> host >> address >> port)) return {};
    try {
      return addresses_of({.host = ShortText<64>::of(host), .address = ShortText<64>::of(address), .port = port});
    } catch (const Error&) {  // the text is invalid; anybody may write into the store
      return {};
    }
  }

  /// Calls until a rank answers. If the limit is over, `problem` says why no rank has answered.
  template <typename Addresses>
  Socket call_until_answered(const Addresses& addresses, bool is_control, CallProblem& problem) {
    for (bool is_tried = false;;) {
      for (const TcpAddress& address : addresses()) {
        CallProblem latest;
        Socket socket = call_rank(address, claim(is_control), key_, patience_, latest);
        // Keep the problem of an earlier attempt if it tells more. An attempt that the limit cut short tells less. So
        // does an address where nobody listens any more: the rank there may just have ended, because it has another
        // secret.
        const bool tells_more = patience_.step().count() > 0 && (latest.is_connected || !problem.is_connected);
        if (!is_tried || latest.is_final || tells_more) problem = std::move(latest);
        is_tried = true;
        if (socket.get() >= 0 || problem.is_final) return socket;
      }
      const auto wait = patience_.step();
      if (wait.count() == 0) return Socket();
      std::this_thread::sleep_for(std::min(wait, kCallAgain));
    }
  }

  static Error refusal(int64_t rank, const CallProblem& problem) {
    return run_failure("rank " + std::to_string(rank) + " refuses this rank: " + problem.text,
                       "start each rank once, with the same number of ranks and the same command");
  }

  void call_rank_0() {
    for (const bool is_control : {false, true}) {
      CallProblem problem{.text = "rank 0 has not written its address into the store"};
      Socket socket = call_until_answered([this] { return addresses_of_rank_0(); }, is_control, problem);
      if (socket.get() < 0 && problem.is_final) throw refusal(0, problem);
      if (socket.get() < 0)
        throw run_failure("the ranks' meeting place cannot be reached at " + where() + ": " + problem.text,
                          "set MASTER_ADDR to rank 0's host and MASTER_PORT to a free port there, and start rank 0 "
                          "with the same SPARSEREEL_JOB_SECRET");
      take(0, is_control, std::move(socket));
    }
  }

  void call(int64_t other) {
    for (const bool is_control : {false, true}) {
      CallProblem problem;
      Socket socket = call_until_answered([&] { return addresses_of(seat(other).record); }, is_control, problem);
      if (socket.get() < 0 && problem.is_final) throw refusal(other, problem);
      if (socket.get() < 0)
        throw network_failure_of("no connection to rank " + std::to_string(other) + " on host " +
                                 seat(other).record.host.text() + ": " + problem.text);
      take(other, is_control, std::move(socket));
    }
  }

  static Error network_failure_of(const std::string& cause) {
    return run_failure(cause, "check that the hosts can reach each other");
  }

  void take(int64_t rank, bool is_control, Socket socket) {
    (is_control ? seat(rank).control : seat(rank).data) = std::move(socket);
  }

  /// Returns the reason to refuse the caller; empty if this rank waits for it.
  std::string refusal_of(const RankClaim& claim) {
    const std::string name = "rank " + std::to_string(claim.rank);
    if (claim.size != size_)
      return name + " was started as one of " + std::to_string(claim.size) + " ranks, but rank " +
             std::to_string(rank_) + " as one of " + std::to_string(size_);
    if (claim.rank <= rank_ || claim.rank >= size_) return name + " is not expected here";
    const Socket& known = claim.is_control != 0 ? seat(claim.rank).control : seat(claim.rank).data;
    const bool is_there = known.get() >= 0 && !has_hung_up(known.get());
    return is_there ? name + " has already connected" : "";
  }

  void receive(Caller caller) {
    const RankClaim& claim = caller.claim;
    const std::string why = refusal_of(claim);
    if (!answer_caller(caller, why)) return;
    if (claim.size != size_) throw bad_input(why, "start all ranks with the same number of ranks (WORLD_SIZE)");
    if (!why.empty()) return;
    seat(claim.rank).record = {.host = claim.host, .address = claim.address, .port = claim.port};
    take(claim.rank, claim.is_control != 0, std::move(caller.socket));
  }

  std::optional<int64_t> missing() {
    for (int64_t other = rank_ + 1; other < size_; ++other)
      if (seat(other).control.get() < 0 || seat(other).data.get() < 0) return other;
    return std::nullopt;
  }

  /// Waits for the ranks with higher numbers. Each of them calls twice, for data and for control.
  void receive_the_others() {
    while (const std::optional<int64_t> first = missing()) {
      const auto wait = patience_.step();
      if (wait.count() == 0) throw missing_rank(*first);
      for (Caller& caller : reception_->serve(wait)) receive(std::move(caller));
    }
  }

  Error missing_rank(int64_t rank) const {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limits_.start).count();
    std::string cause = "rank " + std::to_string(rank) + " did not start within " + std::to_string(seconds) + " s";
    if (reception_->strangers() == 0) return run_failure(cause, kSameCommandRemedy);
    return run_failure(cause + "; connections with another secret: " + std::to_string(reception_->strangers()),
                       "give all ranks the same SPARSEREEL_JOB_SECRET");
  }

  void tell_all() {
    std::vector<ListenerRecord> table;
    for (const Seat& each : seats_) table.push_back(each.record);
    for (int64_t other = 1; other < size_; ++other)
      if (!send_within(seat(other).data.get(), table.data(), table.size() * sizeof(ListenerRecord), patience_))
        throw network_failure_of("rank " + std::to_string(other) + " ended before all ranks had met");
  }

  void hear_of_the_others() {
    std::vector<ListenerRecord> table(static_cast<size_t>(size_));
    if (!receive_within(seat(0).data.get(), table.data(), table.size() * sizeof(ListenerRecord), patience_))
      throw run_failure("rank 0 could not connect to every rank", "read the error that rank 0 printed");
    for (size_t i = 1; i < table.size(); ++i) seats_[i].record = table[i];
  }

  const Rendezvous& place_;
  const std::string host_;
  const int64_t rank_, size_;
  const GroupLimits& limits_;
  Patience patience_;
  JobKey key_;
  std::vector<Seat> seats_;
  ListenerRecord own_;
  std::optional<KeptStore> store_;
  std::optional<Reception> reception_;
};

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::vector<Link> meet(const Rendezvous& place, int64_t rank, int64_t size, const GroupLimits& limits) {
  if (size > kMostLaunched)
    throw bad_input(std::to_string(size) + " ranks cannot make a video together", "start fewer ranks");
  return RanksMeeting(place, rank, size, limits).meet();
}

}  // namespace sparsereel::models
