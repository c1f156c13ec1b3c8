// Every call moves its bytes to and from all ranks at once. A separate thread listens for reports of failures
// meanwhile.
#include "models/parallel/socket_mesh.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "models/parallel/patience.h"

namespace sparsereel::models {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGrace{200};       // time to hear the report of the rank that failed first
constexpr milliseconds kLostGrace{2000};  // time for the listener to hear why a data socket was closed
constexpr size_t kMostWords = 4096;       // limit in bytes for a cause, and for a remedy, in a message
constexpr size_t kNameBytes = 64;

constexpr const char* kSeeWhatEndedIt =
    "find out what ended it (memory, a signal, the kernel's log), then run the same command again";

void wake(int event) noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event, &one, sizeof(one));
}

template <typename Number>
void put(std::string& text, Number number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

template <typename Number>
Number take(std::string_view& text) {
  Number number{};
  if (text.size() < sizeof(number)) throw run_failure("a rank sent half a message", kSeeWhatEndedIt);
  std::memcpy(&number, text.data(), sizeof(number));
  text.remove_prefix(sizeof(number));
  return number;
}

// A message on a control socket is 4 bytes with the size of the rest, then a letter. 'L' says that the rank leaves. 'E'
// says that the group has ended, and the error follows. 'S' says the same from a rank that could go on with other work.
constexpr char kLeaves = 'L', kEnds = 'E', kEndsSoundly = 'S';

std::string framed(const std::string& body) {
  std::string message;
  put(message, static_cast<uint32_t>(body.size()));
  return message + body;
}

std::string ends_message(const Error& error, bool sound) {
  const std::string cause = std::string(error.what()).substr(0, kMostWords);
  std::string body(1, sound ? kEndsSoundly : kEnds);
  put(body, static_cast<int32_t>(error.kind()));
  put(body, static_cast<uint32_t>(cause.size()));
  return framed(body + cause + error.remedy().substr(0, kMostWords));
}

/// Returns the kind of error that a rank sent as a number. An unknown number counts as a failure.
ErrorKind kind_of(int32_t number) {
  for (const ErrorKind kind : {ErrorKind::bad_input, ErrorKind::cancelled})
    if (number == static_cast<int32_t>(kind)) return kind;
  return ErrorKind::failed;
}

Error read_error(std::string_view body) {
  const ErrorKind kind = kind_of(take<int32_t>(body));
  const size_t cause = std::min<size_t>(take<uint32_t>(body), body.size());
  return {kind, std::string(body.substr(0, cause)), std::string(body.substr(cause))};
}

int new_event() {
  const int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event < 0)
    throw run_failure(std::string("cannot make an eventfd: ") + std::generic_category().message(errno),
                      "raise 'ulimit -n'");
  return event;
}

std::string seconds_text(milliseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time).count();
  return seconds > 0 ? std::to_string(seconds) + " s" : std::to_string(time.count()) + " ms";
}

/// Returns true if errno says that the socket is only busy; false if it is broken.
bool only_busy() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

/// A transfer in progress. Each direction moves a count of bytes, then the bytes.
struct SocketMesh::Moving {
  explicit Moving(const Transfer& transfer)
      : rank(transfer.rank),
        send(transfer.send.value_or(std::span<const std::byte>())),
        receive(transfer.receive.value_or(std::span<std::byte>())),
        send_size(send.size()),
        to_send(transfer.send ? sizeof(send_size) + send.size() : 0),
        to_receive(transfer.receive ? sizeof(receive_size) + receive.size() : 0) {}

  bool sends() const { return sent < to_send; }
  bool receives() const { return received < to_receive; }

  int64_t rank;
  std::span<const std::byte> send;
  std::span<std::byte> receive;
  uint64_t send_size, receive_size = 0;
  size_t to_send, to_receive, sent = 0, received = 0;
};

SocketMesh::SocketMesh(int64_t rank, std::vector<Link> links, const GroupLimits& limits)
    : rank_(rank),
      links_(std::move(links)),
      limits_(limits),
      ended_event_(new_event()),
      quit_event_(new_event()),
      calls_event_(new_event()),
      listened_(links_.size()) {
  for (const Link& link : links_)
    for (const int socket : {link.data, link.control})
      if (socket >= 0) fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);  // NOLINT: a C function
}

SocketMesh::~SocketMesh() {
  if (!ended()) tell(framed(std::string(1, kLeaves)));
  wake(quit_event_);
  if (listener_.joinable()) listener_.join();
  close_links(links_);
  for (const int event : {ended_event_, quit_event_, calls_event_}) close(event);
}

void SocketMesh::meet(const std::string& name) {
  listener_ = std::thread([this] { listen(); });
  std::vector<std::array<char, kNameBytes>> names(links_.size());
  std::copy_n(name.begin(), std::min(name.size(), kNameBytes - 1), names[static_cast<size_t>(rank_)].begin());
  std::vector<Transfer> transfers;
  for (int64_t other = 0; other < size(); ++other)
    if (other != rank_)
      transfers.push_back({.rank = other,
                           .send = std::as_bytes(std::span(names[static_cast<size_t>(rank_)])),
                           .receive = std::as_writable_bytes(std::span(names[static_cast<size_t>(other)]))});
  exchange(transfers, limits_.start);
  const std::lock_guard lock(mutex_);
  for (auto& each : names) {
    each.back() = 0;
    names_.emplace_back(each.data());
  }
}

bool SocketMesh::send_some(Moving& moving) {
  constexpr size_t kHead = sizeof(moving.send_size);
  const bool head = moving.sent < kHead;
  const std::byte* from = head ? reinterpret_cast<const std::byte*>(&moving.send_size) + moving.sent
                               : moving.send.data() + (moving.sent - kHead);
  const size_t left = (head ? kHead : moving.to_send) - moving.sent;
  const ssize_t count = ::send(links_[static_cast<size_t>(moving.rank)].data, from, left, MSG_NOSIGNAL);
  if (count < 0 && !only_busy()) lose(moving.rank);
  moving.sent += static_cast<size_t>(std::max<ssize_t>(count, 0));
  return count > 0;
}

bool SocketMesh::receive_some(Moving& moving) {
  constexpr size_t kHead = sizeof(moving.receive_size);
  const bool head = moving.received < kHead;
  std::byte* to = head ? reinterpret_cast<std::byte*>(&moving.receive_size) + moving.received
                       : moving.receive.data() + (moving.received - kHead);
  const size_t left = (head ? kHead : moving.to_receive) - moving.received;
  const ssize_t count = ::recv(links_[static_cast<size_t>(moving.rank)].data, to, left, 0);
  if (count == 0 || (count < 0 && !only_busy())) lose(moving.rank);
  moving.received += static_cast<size_t>(std::max<ssize_t>(count, 0));
  if (head && moving.received == kHead && moving.receive_size != moving.receive.size()) {
    const Error error = run_failure(describe(moving.rank) + " sent " + std::to_string(moving.receive_size) +
                                        " bytes instead of " + std::to_string(moving.receive.size()),
                                    "report this with the command line and 'sparsereel doctor'");
    fail(error);
    throw error;
  }
  return count > 0;
}

/// Returns false if nothing could be moved within `wait`.
bool SocketMesh::move_what_is_ready(std::vector<Moving>& moving, milliseconds wait) {
  std::vector<pollfd> sockets = {{.fd = ended_event_, .events = POLLIN, .revents = 0}};
  for (const Moving& each : moving)
    sockets.push_back({.fd = each.sends() || each.receives() ? links_[static_cast<size_t>(each.rank)].data : -1,
                       .events = static_cast<short>((each.sends() ? POLLOUT : 0) | (each.receives() ? POLLIN : 0)),
                       .revents = 0});
  if (poll(sockets.data(), sockets.size(), static_cast<int>(wait.count())) <= 0) return false;
  if (sockets.front().revents != 0) check();
  bool moved = false;
  for (size_t i = 0; i < moving.size(); ++i) {
    constexpr auto kBroken = POLLERR | POLLHUP;
    const short ready = sockets[i + 1].revents;
    if (moving[i].sends() && (ready & (POLLOUT | kBroken)) != 0) moved |= send_some(moving[i]);
    if (moving[i].receives() && (ready & (POLLIN | kBroken)) != 0) moved |= receive_some(moving[i]);
  }
  return moved;
}

void SocketMesh::exchange(const std::vector<Transfer>& transfers, milliseconds limit) {
  check();
  std::vector<Moving> moving(transfers.begin(), transfers.end());
  Patience patience(limit);
  const auto unfinished = [](const Moving& each) { return each.sends() || each.receives(); };
  for (auto first = std::ranges::find_if(moving, unfinished); first != moving.end();
       first = std::ranges::find_if(moving, unfinished)) {
    const milliseconds wait = patience.step();
    if (wait.count() == 0) give_up(first->rank, limit);
    if (move_what_is_ready(moving, wait)) patience.renew();
  }
}

/// Handles a closed data socket. Waits until the listener knows why it was closed.
void SocketMesh::lose(int64_t rank) {
  bool left = false;
  for (const auto end = Clock::now() + kLostGrace; !left && Clock::now() < end;) {
    pollfd event = {.fd = ended_event_, .events = POLLIN, .revents = 0};
    if (poll(&event, 1, 20) > 0) check();
    const std::lock_guard lock(mutex_);
    left = listened_[static_cast<size_t>(rank)].left;
  }
  fail(run_failure(describe(rank) + (left ? " left before the others" : " ended in the middle of the work"),
                   kSeeWhatEndedIt));
  check();
  std::terminate();  // fail() has made check() throw
}

void SocketMesh::give_up(int64_t rank, milliseconds limit) {
  const bool met = !names_.empty();
  fail(run_failure(describe(rank) + (met ? " did not answer within " : " did not start within ") + seconds_text(limit),
                   met ? "see what that rank does, end it if it does not go on, then run the same command again"
                       : "start that rank, make sure that it can reach this host, then run the same command again"));
  check();
  std::terminate();  // fail() has made check() throw, as in lose()
}

void SocketMesh::fail(const Error& error, bool sound) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) return;
      failure_ = error;
      sound_ = sound;
    }
    tell(ends_message(error, sound));  // before the registered calls, which may end the process
  } catch (...) {                      // out of memory; the other ranks see the sockets close
  }
  wake(ended_event_);
  wake(calls_event_);
}

/// Sends the message to all other ranks. Ignores ranks to which it cannot be sent: they are gone, or no longer read.
void SocketMesh::tell(const std::string& message) noexcept {
  const std::lock_guard lock(send_mutex_);
  for (const Link& link : links_)
    if (link.control >= 0) {
      [[maybe_unused]] const ssize_t sent = ::send(link.control, message.data(), message.size(), MSG_NOSIGNAL);
    }
}

void SocketMesh::listen() noexcept {
  for (;;) {
    std::vector<pollfd> sockets = {{.fd = quit_event_, .events = POLLIN, .revents = 0},
                                   {.fd = calls_event_, .events = POLLIN, .revents = 0}};
    bool anyone_lost = false;
    {
      const std::lock_guard lock(mutex_);
      for (size_t i = 0; i < links_.size(); ++i) {
        sockets.push_back({.fd = listened_[i].gone ? -1 : links_[i].control, .events = POLLIN, .revents = 0});
        anyone_lost |= !failure_ && !listened_[i].left && listened_[i].gone;
      }
    }
    poll(sockets.data(), sockets.size(), anyone_lost ? static_cast<int>(kGrace.count() / 4) : -1);
    if (sockets[0].revents != 0) return;
    try {
      for (size_t i = 0; i < links_.size(); ++i)
        if (sockets[i + 2].revents != 0) hear(static_cast<int64_t>(i));
      bury_the_lost();
    } catch (const Error& error) {
      fail(error);
    } catch (...) {
      fail(run_failure("out of host memory", "end other programs"));
    }
    if (sockets[1].revents != 0) run_calls();
  }
}

void SocketMesh::hear(int64_t rank) {
  std::array<char, 4096> bytes{};
  const ssize_t count = ::recv(links_[static_cast<size_t>(rank)].control, bytes.data(), bytes.size(), 0);
  if (count < 0 && only_busy()) return;
  Listened& from = listened_[static_cast<size_t>(rank)];
  const std::lock_guard lock(mutex_);
  if (count <= 0) {
    from.gone = Clock::now();
    return;
  }
  from.bytes.append(bytes.data(), static_cast<size_t>(count));
  take_messages(from);
}

/// Requires mutex_.
void SocketMesh::take_messages(Listened& from) {
  constexpr size_t kMost = 3 * kMostWords;
  while (from.bytes.size() >= sizeof(uint32_t)) {
    std::string_view rest = from.bytes;
    const auto size = take<uint32_t>(rest);
    if (size == 0 || size > kMost) throw run_failure("a rank sent bytes that are not a message", kSeeWhatEndedIt);
    if (rest.size() < size) return;
    std::string_view body = rest.substr(0, size);
    const char type = take<char>(body);
    if (type == kLeaves) from.left = true;
    if ((type == kEnds || type == kEndsSoundly) && !failure_) {
      failure_ = read_error(body);
      sound_ = type == kEndsSoundly;
      wake(ended_event_);
      wake(calls_event_);
    }
    from.bytes.erase(0, sizeof(uint32_t) + size);
  }
}

/// Ends the mesh if a rank closed its socket without a message: that rank is dead. Waits kGrace first, because another
/// rank may have failed before and may still report it.
void SocketMesh::bury_the_lost() {
  for (int64_t rank = 0; rank < size(); ++rank) {
    {
      const std::lock_guard lock(mutex_);
      const Listened& from = listened_[static_cast<size_t>(rank)];
      if (failure_ || from.left || !from.gone || Clock::now() - *from.gone < kGrace) continue;
    }
    return fail(run_failure(describe(rank) + " ended in the middle of the work", kSeeWhatEndedIt));
  }
}

std::string SocketMesh::describe(int64_t rank) const {
  const std::lock_guard lock(mutex_);
  std::string text = "rank " + std::to_string(rank);
  if (static_cast<size_t>(rank) < names_.size()) text += " (" + names_[static_cast<size_t>(rank)] + ")";
  return text;
}

void SocketMesh::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
}

bool SocketMesh::ended() const noexcept {
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

bool SocketMesh::ended_soundly() const noexcept {
  const std::lock_guard lock(mutex_);
  return failure_.has_value() && sound_;
}

bool SocketMesh::has_left(int64_t rank) const {
  const std::lock_guard lock(mutex_);
  return listened_[static_cast<size_t>(rank)].left;
}

bool SocketMesh::are_others_gone() const {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < links_.size(); ++i)
    if (links_[i].control >= 0 && !listened_[i].gone) return false;
  return true;
}

int64_t SocketMesh::when_ended(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  calls_.emplace(next_call_, std::move(call));
  if (failure_) wake(calls_event_);
  return next_call_++;
}

void SocketMesh::forget(int64_t number) noexcept {
  std::unique_lock lock(mutex_);
  calls_.erase(number);
  if (std::this_thread::get_id() == listener_.get_id()) return;
  calls_ran_.wait(lock, [&] { return running_call_ != number; });
}

void SocketMesh::run_calls() noexcept {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = read(calls_event_, &count, sizeof(count));
  std::unique_lock lock(mutex_);
  while (!calls_.empty()) {
    auto next = calls_.extract(calls_.begin());
    running_call_ = next.key();
    lock.unlock();
    try {
      next.mapped()();
    } catch (...) {  // the call has undone what it could
    }
    lock.lock();
    running_call_ = -1;
    calls_ran_.notify_all();
  }
}

}  // namespace sparsereel::models
