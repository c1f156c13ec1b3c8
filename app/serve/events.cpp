// Queues events for each client.
#include "app/serve/events.h"

#include <algorithm>
#include <chrono>

namespace sparsereel::app::serve {
namespace {

constexpr size_t kMostClients = 64;
constexpr std::chrono::seconds kPing{15};

}  // namespace

std::string event_text(const std::string& event, const std::string& data) {
  return "event: " + event + "\ndata: " + data + "\n\n";
}

void EventHub::publish(const std::string& key, const std::function<std::string()>& make) {
  {
    const std::lock_guard lock(mutex_);
    const std::string text = make();
    if (text.empty()) return;
    for (const std::weak_ptr<Client>& each : clients_) {
      const std::shared_ptr<Client> client = each.lock();
      if (!client) continue;
      client->waiting.remove_if([&](const auto& older) { return older.first == key; });
      client->waiting.emplace_back(key, text);
    }
  }
  changed_.notify_all();
}

HttpStream EventHub::subscribe(const std::function<std::string()>& first) {
  const std::lock_guard lock(mutex_);
  std::erase_if(clients_, [](const std::weak_ptr<Client>& each) { return each.expired(); });
  if (clients_.size() >= kMostClients || closed_) return nullptr;
  const auto client = std::make_shared<Client>();
  client->waiting.emplace_back("", first());
  clients_.push_back(client);
  return [this, client](std::string& text) {
    std::unique_lock own(mutex_);
    if (!changed_.wait_for(own, kPing, [&] { return closed_ || !client->waiting.empty(); })) text = ": ping\n\n";
    for (const auto& [key, waiting] : client->waiting) text += waiting;
    client->waiting.clear();
    return !closed_;
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
