// Queues events for each client.
#include "app/serve/events.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sparsereel::app::serve {
namespace {

constexpr size_t kMostClients = 64;
constexpr std::chrono::seconds kPing{15};

}  // namespace

std::string event_text(const std::string& event, const std::string& data) {
  return "event: " + event + "\ndata: " + data + "\n\n";
}

void EventHub::publish(const std::string& key, const MakeText& make) {
  {
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<Client>& each : clients_) {
      const std::shared_ptr<Client> client = each.lock();
      if (!client) continue;
      client->waiting.remove_if([&](const auto& older) { return older.first == key; });
      client->waiting.emplace_back(key, make);
    }
  }
  changed_.notify_all();
}

HttpStream EventHub::subscribe(const std::function<std::string()>& first) {
  const std::lock_guard lock(mutex_);
  std::erase_if(clients_, [](const std::weak_ptr<Client>& each) { return each.expired(); });
  if (clients_.size() >= kMostClients || closed_) return nullptr;
  const auto client = std::make_shared<Client>();
  client->waiting.emplace_back("", [text = first()] { return text; });
  clients_.push_back(client);
  return [this, client](std::string& text) {
    std::unique_lock own(mutex_);
    if (!changed_.wait_for(own, kPing, [&] { return closed_ || !client->waiting.empty(); })) text = ": ping\n\n";
    const auto waiting = std::exchange(client->waiting, {});
    const bool is_open = !closed_;
    own.unlock();
    for (const auto& [key, make] : waiting) text += make();
    return is_open;
  };
}

size_t EventHub::clients() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::ranges::count_if(clients_, [](const std::weak_ptr<Client>& each) { return !each.expired(); }));
}

void EventHub::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

}  // namespace sparsereel::app::serve
