// Writes events. Each event replaces an older one about the same thing that a client has not read yet.
#include "app/serve/publisher.h"

#include <nlohmann/json.hpp>

#include "app/jobs/report.h"

namespace sparsereel::app::serve {

void Publisher::video(const std::string& id) {
  events_.publish(id, [&] {
    const nlohmann::json video = store_.object(id);
    return video.is_null() ? std::string() : event_text("video", dump(video));
  });
}

void Publisher::deleted(const std::string& id) {
  events_.publish(id, [&] { return event_text("deleted", nlohmann::json{{"id", id}}.dump()); });
}

void Publisher::queue() {
  constexpr size_t kMostIds = 100;
  events_.publish("queue", [&] { return event_text("queue", nlohmann::json{{"ids", store_.queue(kMostIds)}}.dump()); });
}

void Publisher::preview(const std::string& id, int64_t step) {
  events_.publish(id + " preview", [&] {
    return event_text("preview", nlohmann::json{{"id", id}, {"step", step}}.dump());
  });
}

}  // namespace sparsereel::app::serve
