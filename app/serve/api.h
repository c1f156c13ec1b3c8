// The routes of the server: OpenAI's video API, and what the page needs besides. Safe for threads.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "app/serve/access.h"
#include "app/serve/body.h"
#include "app/serve/events.h"
#include "app/serve/http.h"
#include "app/serve/metrics.h"
#include "app/serve/planner.h"
#include "app/serve/publisher.h"
#include "app/serve/store.h"
#include "app/serve/workers.h"

namespace sparsereel::app::serve {

/// The parts of a server that its routes use.
struct ApiParts {
  const ServedModel& model;
  VideoStore& store;
  EventHub& events;
  Publisher& publisher;
  Metrics& metrics;
  Access& access;
  Workers& workers;
  RequestCheck& check;
  size_t most_waiting = 100;
};

class Api final : public HttpHandler {
 public:
  explicit Api(const ApiParts& parts) : parts_(parts) {}

  std::optional<HttpResponse> before_body(const HttpRequest& request) override;
  HttpResponse handle(const HttpRequest& request) override;
  void answered(int status) override { parts_.metrics.answered(status); }
  /// Makes /health say that the server is stopping.
  void stop() { stopping_ = true; }

 private:
  struct Route;

  HttpResponse answer(const HttpRequest& request, const Route& route);
  HttpResponse answer_about_video(const HttpRequest& request, const Route& route);
  HttpResponse health() const;
  HttpResponse session(const HttpRequest& request);
  HttpResponse events();
  HttpResponse metrics() const;
  HttpResponse options();
  HttpResponse models(const std::string& id);
  HttpResponse create(const HttpRequest& request);
  HttpResponse accept(const AskedVideo& asked);
  HttpResponse list(const HttpRequest& request) const;
  HttpResponse video(const std::string& id) const;
  HttpResponse content(const HttpRequest& request, const std::string& id) const;
  HttpResponse preview(const std::string& id);
  HttpResponse cancel(const std::string& id);
  HttpResponse remove(const std::string& id);
  HttpResponse full() const;

  ApiParts parts_;
  const int64_t created_ = unix_now();
  std::atomic<bool> stopping_ = false;
};

}  // namespace sparsereel::app::serve
