// Server-sent events: each client of /events gets every change of a video. No torch.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "app/serve/http.h"

namespace sparsereel::app::serve {

/// Returns an event as clients read it.
std::string event_text(const std::string& event, const std::string& data);

class EventHub {
 public:
  using MakeText = std::function<std::string()>;

  /// Sends the event that `make` returns to all clients; none if it is empty. `make` runs once for each client, when
  /// and where that client reads, so the caller does not wait for it. It must return the newest state: then a client
  /// never gets an older state after a newer one. It must be callable until close(). If a client has not yet read an
  /// older event with this key, the new one replaces it, so a slow client costs little memory.
  void publish(const std::string& key, const MakeText& make);
  /// Returns a stream that begins with the text of `first`; null if there are too many clients. No event is published
  /// while `first` runs, so that none is missed. The stream sends a comment every 15 seconds, so that both sides notice
  /// a broken connection.
  HttpStream subscribe(const std::function<std::string()>& first);
  size_t clients() const;
  /// Ends all streams.
  void close();

 private:
  struct Client {
    std::list<std::pair<std::string, MakeText>> waiting;  // by key
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::weak_ptr<Client>> clients_;
  bool closed_ = false;
};

}  // namespace sparsereel::app::serve
