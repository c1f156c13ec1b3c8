// Server-sent events: clients of /events get the new state of each video that has changed. No torch.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "app/serve/http.h"

namespace sparsereel::app::serve {

/// Returns an event in the text format of server-sent events.
std::string event_text(const std::string& event, const std::string& data);

class EventHub {
 public:
  using MakeText = std::function<std::string()>;

  /// Sends all clients the event that `make` returns, or nothing if `make` returns an empty text. `make` runs once for
  /// each client, in the thread that reads the client's stream, so publish() does not wait for it. `make` must return
  /// the newest state, so that no client gets an older state after a newer one. It must be callable until close(). If a
  /// client has not yet read an older event with the same key, the new event replaces that one, so a slow client costs
  /// little memory.
  void publish(const std::string& key, const MakeText& make);
  /// Returns a stream that begins with the text that `first` returns; null if there are too many clients, or after
  /// close(). No event is published while `first` runs, so that the client misses no change after that text. If there
  /// is no event for 15 seconds, the stream sends a comment, so that both sides notice a broken connection.
  HttpStream subscribe(const std::function<std::string()>& first);
  size_t clients() const;
  /// Ends all streams.
  void close();

 private:
  struct Client {
    std::list<std::pair<std::string, MakeText>> waiting;  // unread events: the key, and what makes the text
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::weak_ptr<Client>> clients_;
  bool closed_ = false;
};

}  // namespace sparsereel::app::serve
