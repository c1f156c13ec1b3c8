// Writes events. Each event replaces an older one about the same thing that a client has not read yet.
#include "app/serve/publisher.h"

#include <nlohmann/json.hpp>

#include "app/jobs/report.h"

namespace sparsereel::app::serve {
namespace {

std::string deleted_text(const std::string& id) {
  return event_text("deleted", nlohmann::json{{"id", id}}.dump());
}

}  // namespace

void Publisher::video(const std::string& id) {
  events_.publish(id, [this, id] {
    const nlohmann::json video = store_.object(id);
    // The video may have been removed since video() was called.
    return video.is_null() ? deleted_text(id) : event_text("video", dump(video));
  });
}

void Publisher::deleted(const std::string& id) {
  events_.publish(id, [id] { return deleted_text(id); });
}

void Publisher::queue() {
  static constexpr size_t kMostIds = 100;
  events_.publish("queue", [this] {
    return event_text("queue", nlohmann::json{{"ids", store_.queue(kMostIds)}}.dump());
  });
}

void Publisher::preview(const std::string& id, int64_t step) {
  events_.publish(id + " preview", [id, step] {
    return event_text("preview", nlohmann::json{{"id", id}, {"step", step}}.dump());
  });
}

}  // namespace sparsereel::app::serve
