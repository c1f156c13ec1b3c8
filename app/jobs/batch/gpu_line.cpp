// Sends and receives messages between the queue's process and a GPU's process.
#include "app/jobs/batch/gpu_line.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "models/parallel/messages.h"

namespace sparsereel::app::sets {

bool LineSocket::send(const nlohmann::json& message) {
  const std::string bytes = models::packed_message(message);
  const std::lock_guard lock(*sending_);
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

std::optional<nlohmann::json> LineSocket::take() {
  return models::take_message(received_);
}

nlohmann::json LineSocket::receive() {
  for (;;) {
    if (auto message = take()) return *std::move(message);
    std::array<char, 4096> bytes{};
    const ssize_t count = recv(socket_, bytes.data(), bytes.size(), 0);
    if (count <= 0) return nullptr;
    received_.append(bytes.data(), static_cast<size_t>(count));
  }
}

bool LineSocket::is_ready() const {
  pollfd ready = {.fd = socket_, .events = POLLIN, .revents = 0};
  return !received_.empty() || poll(&ready, 1, 0) > 0;
}

std::chrono::milliseconds heartbeat_for(std::chrono::milliseconds limit) {
  return std::clamp(limit / 20, std::chrono::milliseconds(10), std::chrono::milliseconds(5000));
}

Heartbeat::Heartbeat(LineSocket& line, std::chrono::milliseconds every)
    : thread_([this, &line, every] {
        std::unique_lock lock(mutex_);
        while (!woken_.wait_for(lock, every, [this] { return quit_; })) line.send({{"alive", true}});
      }) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  woken_.notify_all();
  thread_.join();
}

}  // namespace sparsereel::app::sets
