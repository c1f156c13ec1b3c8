// Answers each route.
#include "app/serve/api.h"

#include <algorithm>
#include <utility>

#include "app/jobs/report.h"
#include "app/serve/http_rules.h"
#include "app/serve/page.h"
#include "app/serve/random_name.h"
#include "app/serve/uploads.h"
#include "hilbert/error.h"
#include "hilbert/lower_case.h"
#include "hilbert/read_text.h"
#include "models/files/json_text.h"
#include "models/request/fields.h"

namespace sparsereel::app::serve {
namespace {

HttpResponse json_response(const nlohmann::json& body) {
  HttpResponse response;
  response.body = dump(body);
  response.headers["Cache-Control"] = "no-store";
  return response;
}

/// Returns the answer that describes a video. Its header says how long a client should wait before it asks again.
HttpResponse video_response(const nlohmann::json& video) {
  HttpResponse response = json_response(video);
  const std::string status = video.at("status");
  if (status == "queued" || status == "in_progress") response.headers["openai-poll-after-ms"] = "1000";
  return response;
}

HttpResponse no_video(const std::string& id) {
  return error_response(404, "video_not_found", "there is no video " + models::in_quotes(id), "see GET /v1/videos");
}

HttpResponse stopping() {
  return error_response(503, "stopping", "the server stops", "try again later");
}

HttpResponse not_found(const HttpRequest& request) {
  return error_response(404, "not_found", "there is no " + request.method + " " + models::in_quotes(request.path),
                        "see the page about 'sparsereel serve'");
}

/// Refuses a body of a wrong kind or length before it is read. Clients without a key may ask for a session, so the body
/// of that request must be small.
std::optional<HttpResponse> refusal_of_body(const HttpRequest& request) {
  constexpr uint64_t kMostSessionBytes = 4096;
  const bool is_session = request.path == "/session";
  const bool is_json = lower_case(request.header("content-type")).starts_with("application/json");
  if (request.count("content-length") != 1)
    return error_response(411, "length_required", "the request does not say how long its body is",
                          "send Content-Length");
  if (!is_json && is_session)
    return error_response(415, "unsupported_body", "the body is not JSON", "send Content-Type: application/json");
  if (!is_json && !request.is_multipart)
    return error_response(415, "unsupported_body", "the body is neither JSON nor a form",
                          "send Content-Type: application/json, or multipart/form-data");
  if (is_session && length_of_body(request) > kMostSessionBytes)
    return error_response(413, "body_too_large", "the body is longer than a key", "send {\"api_key\": \"...\"}");
  return std::nullopt;
}

/// Returns the answer to a request that failed with this error.
HttpResponse refusal(const Error& error) {
  if (error.kind() != ErrorKind::bad_input) return error_response(500, "server_error", error.what(), error.remedy());
  return error_response(400, "invalid_value", error.what(), error.remedy(), error.field());
}

/// Returns the error with the name that the client used for its field.
Error in_names_of_client(const Error& error, const AskedVideo& asked) {
  std::string field = field_name(error.field());
  const bool is_side = field == "width" || field == "height";
  if (is_side && asked.values.contains("size")) field = "size";
  const std::string problem = is_side && field == "size" ? error.what() : error.problem();
  return {error.kind(), problem, error.remedy(), {.field = field}};
}

}  // namespace

/// The parts of a path: "/v1/videos/ID/cancel" has the collection "videos", the id "ID" and the action "cancel".
struct Api::Route {
  explicit Route(const std::string& path) {
    std::vector<std::string> words = split(path, '/');
    words.resize(5);
    if (words[1] != "v1") return;
    collection = words[2];
    id = words[3];
    action = words[4];
    is_valid = std::ranges::count(path, '/') <= 4;
  }

  bool is(const std::string& name) const { return is_valid && collection == name && id.empty(); }
  bool is_one(const std::string& name) const { return is_valid && collection == name && !id.empty(); }

  std::string collection, id, action;
  bool is_valid = false;
};

std::optional<HttpResponse> Api::before_body(const HttpRequest& request) {
  const auto answered_now = [&]() -> std::optional<HttpResponse> {
    if (auto refused = parts_.access.refusal_of_origin(request)) return refused;
    const bool is_open = request.path == "/" || request.path == "/health" || request.path == "/session" ||
                         request.path == "/favicon.ico";
    if (!is_open)
      if (auto refused = parts_.access.refusal_of_key(request)) return refused;
    const Route route(request.path);
    const bool reads_body = request.method == "POST" && (route.is("videos") || request.path == "/session");
    if (reads_body) return refusal_of_body(request);
    try {
      return answer(request, route);
    } catch (const Error& error) {
      return refusal(parts_.model.hidden.for_clients(error));
    }
  };
  std::optional<HttpResponse> response = answered_now();
  if (!response) return response;
  response->closes = response->closes || request.method == "POST";  // an unread body blocks the connection
  return response;
}

HttpResponse Api::handle(const HttpRequest& request) {
  try {
    return request.path == "/session" ? session(request) : create(request);
  } catch (const Error& error) {
    return refusal(parts_.model.hidden.for_clients(error));
  }
}

HttpResponse Api::answer(const HttpRequest& request, const Route& route) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (route.is_one("videos")) return answer_about_video(request, route);
  if (!reads) return not_found(request);
  if (request.path == "/") return page_response();
  if (request.path == "/health") return health();
  if (request.path == "/session")
    return json_response(
        {{"needs_key", parts_.access.needs_key()}, {"signed_in", parts_.access.is_signed_in(request)}});
  if (request.path == "/favicon.ico") return {.status = 204};
  if (request.path == "/events") return events();
  if (request.path == "/metrics") return metrics();
  if (route.is("options")) return options();
  if (route.is("models") || (route.is_one("models") && route.action.empty())) return models(route.id);
  if (route.is("videos")) return list(request);
  return not_found(request);
}

HttpResponse Api::answer_about_video(const HttpRequest& request, const Route& route) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (reads && route.action.empty()) return video(route.id);
  if (reads && route.action == "content") return content(request, route.id);
  if (reads && route.action == "preview") return preview(route.id);
  if (request.method == "POST" && route.action == "cancel") return cancel(route.id);
  if (request.method == "DELETE" && route.action.empty()) return remove(route.id);
  return not_found(request);
}

HttpResponse Api::health() const {
  if (parts_.workers.is_ready() && !stopping_) return json_response({{"status", "ok"}});
  HttpResponse response = json_response({{"status", stopping_ ? "stopping" : "loading"}});
  response.status = 503;
  response.headers["Retry-After"] = "1";
  return response;
}

HttpResponse Api::session(const HttpRequest& request) {
  const nlohmann::json body = models::parse_json(request.body, "the body", "send {\"api_key\": \"...\"}");
  const bool has_key = body.is_object() && body.contains("api_key") && body.at("api_key").is_string();
  const std::string cookie = has_key ? parts_.access.sign_in(body.at("api_key").get<std::string>()) : "";
  if (cookie.empty()) return error_response(401, "invalid_api_key", "the API key is wrong", "check it");
  return {.status = 204, .headers = {{"Set-Cookie", cookie}}};
}

HttpResponse Api::events() {
  HttpStream stream = parts_.events.subscribe([this] {
    std::string text = ": hello\n\n";
    for (const nlohmann::json& video : parts_.store.unfinished()) text += event_text("video", dump(video));
    return text;
  });
  if (!stream) return error_response(503, "too_many_clients", "too many clients read /events", "try again later");
  return {.type = "text/event-stream", .headers = {{"Cache-Control", "no-store"}}, .stream = std::move(stream)};
}

HttpResponse Api::metrics() const {
  const std::map<VideoState, size_t> counts = parts_.store.counts();
  const auto running = counts.find(VideoState::in_progress);
  return {.body = parts_.metrics.text({.waiting = parts_.store.waiting(),
                                       .running = running == counts.end() ? 0 : running->second,
                                       .event_clients = parts_.events.clients(),
                                       .is_ready = parts_.workers.is_ready()}),
          .type = "text/plain; version=0.0.4"};
}

HttpResponse Api::options() {
  const nlohmann::json defaults = models::recipe_of(parts_.check.default_plan(parts_.model));
  return json_response(
      list_fields(parts_.model.settings, defaults, parts_.model.folders, parts_.check.spec(parts_.model)));
}

HttpResponse Api::models(const std::string& id) {
  if (!id.empty() && id != parts_.model.name)
    return error_response(404, "model_not_found", "there is no model " + models::in_quotes(id), "see GET /v1/models");
  const models::Plan plan = parts_.check.default_plan(parts_.model);
  const models::ModelSpec spec = parts_.check.spec(parts_.model);
  const models::ImageSpec& images = spec.image;
  const nlohmann::json recipe = models::recipe_of(plan);
  const Settings& settings = parts_.model.settings;
  nlohmann::json usual = {{"size", std::to_string(plan.width) + "x" + std::to_string(plan.height)},
                          {"num_frames", plan.num_frames},
                          {"fps", settings.number("fps").value_or(settings.fallbacks().fps)}};
  usual["steps"] = plan.asked_steps;
  for (const char* key : {"seed", "cfg_scale", "negative_prompt"})
    if (recipe.contains(key) && (spec.takes_guidance || key == std::string("seed"))) usual[key] = recipe.at(key);
  const nlohmann::json model = {{"id", parts_.model.name},
                                {"object", "model"},
                                {"created", created_},
                                {"owned_by", "local"},
                                {"takes_image", images.any()},
                                {"takes_last_frame", images.takes_last},
                                {"takes_last_frame_alone", images.last_alone},
                                {"needs_image", images.needed},
                                {"makes_sound", spec.sound.any()},
                                {"default", usual}};
  return json_response(id.empty() ? nlohmann::json{{"object", "list"}, {"data", {model}}} : model);
}

HttpResponse Api::full() const {
  HttpResponse response =
      error_response(429, "queue_full", std::to_string(parts_.store.waiting()) + " videos wait already",
                     "try again later, or start the server with a larger --queue");
  response.headers["Retry-After"] = "10";
  return response;
}

HttpResponse Api::create(const HttpRequest& request) {
  if (stopping_) return stopping();
  const AskedVideo asked = request.is_multipart ? parse_form(request.parts) : parse_json_body(request.body);
  if (!asked.model.empty() && asked.model != parts_.model.name)
    return error_response(404, "model_not_found", "there is no model " + models::in_quotes(asked.model),
                          "see GET /v1/models, or leave the field out", "model");
  if (parts_.store.waiting() >= parts_.most_waiting) return full();
  try {
    return accept(asked);
  } catch (const Error& error) {
    throw in_names_of_client(error, asked);
  }
}

HttpResponse Api::accept(const AskedVideo& asked) {
  VideoRecord record;
  record.id = "video_" + random_name();
  record.model = parts_.model.name;
  record.created_at = unix_now();
  record.values = asked.values;
  draw_seed(record.values, parts_.model.settings);
  SavedPictures pictures(parts_.store.folder(), record.id, asked.pictures);
  record.image = pictures.file("image");
  record.last_image = pictures.file("last_image");
  VideoTask task = plan_video(record, parts_.model, parts_.store.folder());
  parts_.check.settle(task);
  record.width = task.plan.width;
  record.height = task.plan.height;
  record.seconds = static_cast<double>(task.plan.num_frames) / task.options.run.video.fps;
  const std::string id = record.id;
  if (!parts_.store.add(std::move(record), parts_.most_waiting)) return full();
  pictures.keep();
  parts_.publisher.video(id);
  parts_.publisher.queue();
  parts_.workers.wake();
  return video(id);
}

HttpResponse Api::list(const HttpRequest& request) const {
  const auto asked = [&](const char* name, const char* usual) {
    const auto found = request.query.find(name);
    return found == request.query.end() ? std::string(usual) : found->second;
  };
  const auto limit = parse_number<int64_t>(asked("limit", "20"));
  if (!limit || *limit < 1 || *limit > 100)
    return error_response(400, "invalid_value", "limit is not a number from 1 to 100", "correct it", "limit");
  const std::string order = asked("order", "desc"), after = asked("after", "");
  if (order != "asc" && order != "desc")
    return error_response(400, "invalid_value", "order is neither asc nor desc", "correct it", "order");
  const auto page = parts_.store.list(after, static_cast<size_t>(*limit), order == "asc");
  if (!page) return no_video(after);
  nlohmann::json data = nlohmann::json::array();
  for (const std::string& id : page->ids)
    if (nlohmann::json each = parts_.store.object(id); !each.is_null()) data.push_back(std::move(each));
  nlohmann::json list = {{"object", "list"}, {"data", data}, {"has_more", page->has_more}};
  list["first_id"] = page->ids.empty() ? nlohmann::json() : nlohmann::json(page->ids.front());
  list["last_id"] = page->ids.empty() ? nlohmann::json() : nlohmann::json(page->ids.back());
  return json_response(list);
}

HttpResponse Api::video(const std::string& id) const {
  const nlohmann::json video = parts_.store.object(id);
  return video.is_null() ? no_video(id) : video_response(video);
}

HttpResponse Api::content(const HttpRequest& request, const std::string& id) const {
  const auto record = parts_.store.find(id);
  if (!record) return no_video(id);
  const auto asked = request.query.find("variant");
  const std::string variant = asked == request.query.end() ? "video" : asked->second;
  if (variant != "video" && variant != "thumbnail" && variant != "spritesheet")
    return error_response(400, "invalid_value", models::in_quotes(variant) + " is no variant of a video",
                          "ask for video, thumbnail or spritesheet", "variant");
  if (record->state != VideoState::completed)
    return error_response(409, "video_not_completed", std::string("the video is ") + name_of(record->state),
                          "ask for its content when its status is completed");
  const VideoFiles files = parts_.store.files(id);
  HttpResponse response;
  response.file = variant == "video" ? files.video : variant == "thumbnail" ? files.thumbnail : files.sheet;
  response.type = variant == "video" ? "video/mp4" : "image/png";
  response.headers["Cache-Control"] = "private, max-age=3600";
  std::error_code ignored;
  if (std::filesystem::is_regular_file(response.file, ignored)) return response;
  return error_response(404, "file_missing", "the file of this video is gone", "make the video again");
}

HttpResponse Api::preview(const std::string& id) {
  if (!parts_.store.find(id)) return no_video(id);
  HttpResponse response{.type = "image/png", .headers = {{"Cache-Control", "no-store"}}};
  response.body = parts_.workers.preview(id);
  if (!response.body.empty()) return response;
  if (!parts_.check.has_previews(parts_.model))
    return error_response(404, "no_preview",
                          "there are no previews of this model's videos: the colors of its latents are unknown",
                          "wait for the video");
  return error_response(404, "no_preview", "the video has no preview", "see has_preview of the video");
}

HttpResponse Api::cancel(const std::string& id) {
  if (!parts_.store.find(id)) return no_video(id);
  bool was_waiting = parts_.store.cancel_waiting(id);
  const bool was_running = !was_waiting && parts_.workers.cancel(id);
  // Look into the queue again: if the process that made the video has just ended, the video has returned to the queue.
  if (!was_waiting && !was_running) was_waiting = parts_.store.cancel_waiting(id);
  if (was_waiting) {
    parts_.metrics.ended("cancelled", 0);
    parts_.publisher.video(id);
    parts_.publisher.queue();
    return video(id);
  }
  const auto record = parts_.store.find(id);
  if (!record) return no_video(id);
  if (was_running && record->error_code == "cancelled") return video(id);
  if (record->is_finished())
    return error_response(409, "video_finished", "the video has ended", "delete it if it is not needed");
  if (stopping_) return stopping();
  HttpResponse later = video(id);  // the video still runs, but will end soon
  later.status = 202;
  return later;
}

HttpResponse Api::remove(const std::string& id) {
  const auto record = parts_.store.find(id);
  if (!record) return no_video(id);
  if (!parts_.store.remove(id))
    return error_response(409, "video_in_progress", "the video is being made",
                          "cancel it first with POST /v1/videos/ID/cancel");
  parts_.publisher.deleted(id);
  parts_.publisher.queue();
  return json_response({{"id", id}, {"object", "video.deleted"}, {"deleted", true}});
}

}  // namespace sparsereel::app::serve
