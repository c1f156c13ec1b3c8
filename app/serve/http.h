// HTTP as the server's other units see it: requests, answers, and the server that listens. with_httplib/ implements the
// server; without_httplib/ stands in for it in builds without cpp-httplib. No torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sparsereel::app::serve {

/// A part of a multipart body.
struct HttpPart {
  std::string name, content;
  bool is_file = false;  // true if the client gave the part a file name, which is never used
};

struct HttpRequest {
  std::string method, path;                         // the path is decoded and has no query
  std::map<std::string, std::string> query = {};    // the first value of each name
  std::multimap<std::string, std::string> headers;  // by lower-case name
  std::string body = {};                            // empty if the body has parts
  std::vector<HttpPart> parts = {};                 // in the order of the body
  bool is_multipart = false;

  /// Returns the first value of this header; empty if there is none. `name` is in lower case.
  std::string header(const std::string& name) const;
  size_t count(const std::string& name) const { return headers.count(name); }
};

/// Writes the next text of a stream into `text`, which may stay empty. Returns false at the end of the stream.
using HttpStream = std::function<bool(std::string& text)>;

struct HttpResponse {
  int status = 200;
  std::string body = {}, type = "application/json";
  std::map<std::string, std::string> headers = {};
  std::filesystem::path file = {};  // sent in place of `body`; clients may ask for a range of it
  HttpStream stream = nullptr;      // sent in place of `body`, until it ends
  bool closes = false;              // the connection is closed after this answer
};

/// Returns an answer in the shape of OpenAI's errors. The message consists of `cause` and `remedy`; `param` names the
/// field at fault, and may be empty.
HttpResponse error_response(int status, const std::string& code, const std::string& cause, const std::string& remedy,
                            const std::string& param = {});

/// Answers requests. The server calls it from many threads.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// Returns the answer if the request can be answered without its body. `request` has neither body nor parts yet.
  virtual std::optional<HttpResponse> before_body(const HttpRequest& request) = 0;
  virtual HttpResponse handle(const HttpRequest& request) = 0;
  /// Called with the status of each answer, also of answers that the HTTP library gives without this handler.
  virtual void answered(int status) = 0;
};

/// How long a server waits for a client before it closes the connection.
struct HttpTimes {
  std::chrono::milliseconds idle{10'000};      // between requests
  std::chrono::milliseconds head{10'000};      // for the whole head of a request
  std::chrono::milliseconds transfer{10'000};  // for the next bytes of a body or an answer
  std::chrono::milliseconds body{30'000};      // for a whole body; added to this: one second for each 64 KiB of it
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0 for any free port
  HttpTimes times = {};
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
  /// Answers requests until stop() is called from another thread. Throws Error if the server can no longer listen.
  virtual void run() = 0;
  virtual void stop() = 0;
};

/// The largest bodies, in bytes, of requests with a form and of other requests. Larger bodies are refused before they
/// are read.
constexpr uint64_t kMostBodyBytes = uint64_t{64} << 20, kMostJsonBytes = uint64_t{16} << 20;

/// Throws Error if this build has no server.
void check_http_server();

/// Binds the port; connections wait until run(). Throws Error if the port is taken, or if this build has no server.
std::unique_ptr<HttpServer> open_http_server(const HttpOptions& options, HttpHandler& handler);

}  // namespace sparsereel::app::serve
