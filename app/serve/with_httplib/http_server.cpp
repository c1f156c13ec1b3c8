// Listens through cpp-httplib, which parses requests and writes answers. Connections are read here, because the library
// limits neither the bytes of a request's head nor the time that it takes, and because it reads the next request from a
// connection even if it has not read the body of the last one. Compiles with versions 0.11 to 0.18.
#include <fcntl.h>
#include <httplib.h>
#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <fstream>
#include <iostream>
#include <thread>

#include "app/serve/http.h"
#include "app/serve/http_rules.h"
#include "app/serve/multipart.h"
#include "app/serve/random_name.h"
#include "app/serve/with_httplib/connection_threads.h"
#include "hilbert/error.h"
#include "hilbert/lower_case.h"

namespace sparsereel::app::serve {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMostConnections = 512, kFewestConnections = 16;
constexpr int kMostRequests = 1000;  // on one connection
constexpr size_t kMostHeadBytes = 64 << 10;
constexpr uint64_t kMostBytesOfBodies = 4 * kMostBodyBytes;  // memory for bodies of all requests together
constexpr uint64_t kBodyRate = 64;                           // KiB/s; see HttpTimes::body
constexpr milliseconds kPoll{100};                           // how often waiting threads check whether the server stops
constexpr milliseconds kLinger{2'000};  // time for reading what a client still sends when its connection is closed
constexpr uint64_t kMostLingerBytes = uint64_t{256} << 20;

/// Waits until the socket is ready. Returns false if time is over or the connection is broken.
bool is_ready(int socket, short events, milliseconds limit) {
  pollfd waiting{.fd = socket, .events = events, .revents = 0};
  const int count = poll(&waiting, 1, static_cast<int>(std::max<int64_t>(limit.count(), 0)));
  return count > 0 && (waiting.revents & events) != 0;
}

/// Returns how many connections the server may hold: at most half of the files that the process may open.
int most_connections() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFewestConnections;
  return static_cast<int>(std::clamp<rlim_t>(limit.rlim_cur / 2, kFewestConnections, kMostConnections));
}

/// Counts a connection while this object lives.
class Slot {
 public:
  explicit Slot(std::atomic<int>& count) : count_(count), number_(++count) {}
  ~Slot() { --count_; }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  int number() const { return number_; }

 private:
  std::atomic<int>& count_;
  const int number_;
};

/// A client's connection. Limits the bytes and the time of each request's head.
class Connection final : public httplib::Stream {
 public:
  Connection(int socket, const HttpTimes& times, const std::atomic<bool>& stopping)
      : socket_(socket), times_(times), stopping_(stopping) {
    fcntl(socket_, F_SETFD, FD_CLOEXEC);  // a process of a GPU must not keep the connection open
  }
  ~Connection() override { finish(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Waits for the next request. Returns false if none comes.
  bool wait() {
    head_bytes_ = 0;
    reached_ = closes_ = false;
    const auto end = Clock::now() + times_.idle;
    bool ready = begin_ < end_;
    while (!ready && !stopping_ && Clock::now() < end) ready = is_ready(socket_, POLLIN, kPoll);
    head_end_ = Clock::now() + times_.head;
    return ready && !stopping_;
  }
  /// Call it when the head is read. A body of `bytes` may follow.
  void reach(bool closes, uint64_t bytes) {
    reached_ = true;
    closes_ = closes;
    body_end_ = Clock::now() + times_.body + milliseconds(1000 * (bytes >> 10U) / kBodyRate);
  }
  bool may_go_on() const { return reached_ && !closes_; }
  void close_behind() { closes_ = true; }
  /// Makes finish() close at once, even if the client still sends.
  void do_not_linger() { lingers_ = false; }
  uint64_t body_bytes = 0;  // bytes of memory that the request's body takes
  std::string form_type;    // Content-Type of a request with a form; empty for other requests

  bool is_readable() const override { return begin_ < end_ || is_ready(socket_, POLLIN, times_.transfer); }
  bool is_writable() const override { return is_ready(socket_, POLLOUT, times_.transfer); }
  ssize_t read(char* to, size_t size) override {
    if (begin_ == end_ && !fill()) return -1;
    const size_t count = std::min(size, end_ - begin_);
    if (!reached_ && (head_bytes_ += count) > kMostHeadBytes) return -1;
    std::copy_n(buffer_.begin() + static_cast<ptrdiff_t>(begin_), count, to);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* from, size_t size) override {
    if (!is_writable()) return -1;
    return send(socket_, from, size, MSG_NOSIGNAL);
  }
  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  socket_t socket() const override { return socket_; }

 private:
  bool fill() {
    const auto left = std::chrono::duration_cast<milliseconds>((reached_ ? body_end_ : head_end_) - Clock::now());
    const milliseconds limit = reached_ ? std::min(times_.transfer, left) : left;
    if (limit.count() <= 0 || !is_ready(socket_, POLLIN, limit)) return false;
    const ssize_t count = recv(socket_, buffer_.data(), buffer_.size(), 0);
    begin_ = 0;
    end_ = count > 0 ? static_cast<size_t>(count) : 0;
    return count > 0;
  }
  /// Reads what the client still sends, and then lets the connection close. If bytes stayed unread, the system would
  /// reset the connection, and the client might lose the answer.
  void finish() {
    shutdown(socket_, SHUT_WR);
    const auto end = Clock::now() + kLinger;
    for (uint64_t bytes = 0; lingers_ && bytes < kMostLingerBytes && Clock::now() < end && !stopping_;) {
      if (!is_ready(socket_, POLLIN, kPoll)) continue;
      const ssize_t count = recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (count <= 0) break;
      bytes += static_cast<uint64_t>(count);
    }
    close(socket_);
  }

  const int socket_;
  const HttpTimes times_;
  const std::atomic<bool>& stopping_;
  std::array<char, 16 << 10> buffer_{};
  size_t begin_ = 0, end_ = 0, head_bytes_ = 0;
  Clock::time_point head_end_, body_end_;
  bool reached_ = false, closes_ = false, lingers_ = true;
};

thread_local Connection* current = nullptr;

HttpRequest request_of(const httplib::Request& from) {
  HttpRequest request{.method = from.method, .path = from.path, .headers = {}};
  for (const auto& [name, value] : from.params) request.query.emplace(name, value);
  for (const auto& [name, value] : from.headers) request.headers.emplace(lower_case(name), value);
  request.body = from.body;
  request.is_multipart = is_form_type(request.header("content-type"));
  return request;
}

std::string request_id() {
  return "req_" + random_name();
}

void add_usual_headers(httplib::Response& to) {
  if (!to.has_header("x-request-id")) to.set_header("x-request-id", request_id());
  to.set_header("X-Content-Type-Options", "nosniff");
}

void send_stream(const HttpResponse& from, httplib::Response& to) {
  to.set_chunked_content_provider(from.type, [stream = from.stream](size_t /*offset*/, httplib::DataSink& sink) {
    std::string text;
    const bool goes_on = stream(text);
    if (!text.empty() && !sink.write(text.data(), text.size())) return false;
    if (!goes_on) sink.done();
    return true;
  });
}

/// Sends a file or the range of it that the request asks for.
void send_file(const HttpResponse& from, const HttpRequest& request, httplib::Response& to) {
  const auto file = std::make_shared<std::ifstream>(from.file, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(file->is_open() ? static_cast<int64_t>(file->tellg()) : 0);
  const auto range = asked_range(request.header("range"), size);
  if (!range) {
    to.status = 416;
    to.set_header("Content-Range", "bytes */" + std::to_string(size));
    return;
  }
  to.status = range->is_part ? 206 : 200;
  to.set_header("Accept-Ranges", "bytes");
  if (range->is_part)
    to.set_header("Content-Range", "bytes " + std::to_string(range->first) + "-" + std::to_string(range->last) + "/" +
                                       std::to_string(size));
  if (size == 0) return;
  to.set_content_provider(static_cast<size_t>(range->last - range->first + 1), from.type.c_str(),
                          [file, first = range->first](size_t offset, size_t length, httplib::DataSink& sink) {
                            std::array<char, 64 << 10> piece{};
                            file->clear();
                            file->seekg(first + static_cast<int64_t>(offset));
                            file->read(piece.data(), static_cast<std::streamsize>(std::min(length, piece.size())));
                            return file->gcount() > 0 && sink.write(piece.data(), static_cast<size_t>(file->gcount()));
                          });
}

class HttplibServer final : public HttpServer, private httplib::Server {
 public:
  HttplibServer(const HttpOptions& options, HttpHandler& handler) : handler_(handler), times_(options.times) {
    new_task_queue = [this] { return new ConnectionQueue(threads_); };  // httplib owns it
    // Replace the library's own options, which would let a second server share the port.
    set_socket_options([](socket_t socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      fcntl(socket, F_SETFD, FD_CLOEXEC);  // a process of a GPU must not keep the port either
    });
    set_keep_alive_max_count(kMostRequests);
    set_keep_alive_timeout(std::chrono::ceil<std::chrono::seconds>(options.times.idle).count());
    set_payload_max_length(kMostBodyBytes);
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      return answer_head(request, response) ? HandlerResponse::Handled : HandlerResponse::Unhandled;
    });
    Post(".*", [this](const httplib::Request& request, httplib::Response& response) {
      HttpRequest own = request_of(request);
      send(call([&] {
             read_form(own);
             return handler_.handle(own);
           }),
           own, response);
    });
    set_error_handler(Handler([](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return;
      if (current != nullptr) current->close_behind();
      const HttpResponse error = refusal_of_status(response.status);
      response.set_header("Connection", "close");
      add_usual_headers(response);
      response.set_content(error.body, error.type.c_str());
    }));
    set_logger(
        [this](const httplib::Request&, const httplib::Response& response) { handler_.answered(response.status); });
    bind(options);
  }

  ~HttplibServer() override {
    stopping_ = true;
    threads_.join();
    close(spare_socket_);
  }
  HttplibServer(const HttplibServer&) = delete;
  HttplibServer& operator=(const HttplibServer&) = delete;

  int port() const override { return port_; }
  void run() override {
    bool listens = true;
    while (listens && !listen_after_bind() && !stopping_) listens = listen_again();
    const bool failed = !stopping_.exchange(true);
    ended_ = true;
    if (failed) throw run_failure("the server can accept no more connections", "start it again");
    threads_.join();
  }
  void stop() override {
    stopping_ = true;
    while (!is_running() && !ended_) std::this_thread::sleep_for(milliseconds(1));
    httplib::Server::stop();
  }

 private:
  void bind(const HttpOptions& options) {
    port_ = options.port;
    const bool bound =
        options.port == 0 ? (port_ = bind_to_any_port(options.host)) > 0 : bind_to_port(options.host, options.port);
    if (!bound)
      throw bad_input("cannot listen on " + options.host + ":" + std::to_string(options.port) +
                          ": the port is taken, or the host is no address of this machine",
                      "choose another with --port or --host, or end the server that uses it");
    constexpr int kBacklog = 128;
    ::listen(svr_sock_, kBacklog);  // the library lets only five connections wait
    spare_socket_ = fcntl(svr_sock_, F_DUPFD_CLOEXEC, 0);
  }

  /// Opens the socket again. The library closes it when the system cannot accept a connection, for want of memory or
  /// because the client has gone.
  bool listen_again() {
    std::cerr << "warning: cannot accept a connection; the server listens again\n";
    std::this_thread::sleep_for(kPoll);
    const int socket = fcntl(spare_socket_, F_DUPFD_CLOEXEC, 0);
    if (socket >= 0) svr_sock_ = socket;
    return socket >= 0;
  }

  bool process_and_close_socket(socket_t socket) override {
    const Slot slot(connections_);  // counts the connection until it is closed
    Connection connection(socket, times_, stopping_);
    if (slot.number() > most_connections_) {
      static constexpr std::string_view kBusy =
          "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\nRetry-After: 5\r\n\r\n";
      connection.write(kBusy.data(), kBusy.size());
      connection.do_not_linger();
    } else {
      current = &connection;
      for (int i = 0; i < kMostRequests && connection.wait(); ++i) {
        bool closed = false;
        const bool go_on = process(*this, connection, closed);
        body_bytes_ -= std::exchange(connection.body_bytes, 0);
        if (!go_on || closed || !connection.may_go_on()) break;
      }
      current = nullptr;
    }
    return true;
  }

  /// Calls the library's process_request(), whose parameters depend on its version.
  template <typename Self>
  static bool process(Self& self, Connection& connection, bool& closed) {
    const auto nothing = [](httplib::Request&) {};
    if constexpr (requires { self.process_request(connection, "", 0, "", 0, false, closed, nothing); })
      return self.process_request(connection, "", 0, "", 0, false, closed, nothing);
    else
      return self.process_request(connection, false, closed, nothing);
  }

  /// Answers a request whose body is not needed or is refused. Returns false if the body must be read first.
  bool answer_head(const httplib::Request& request, httplib::Response& response) {
    // The library would apply a Range header to any body, but only send_file() should. The const_cast is valid, because
    // the library's request is not const.
    auto& library_request = const_cast<httplib::Request&>(request);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    library_request.ranges.clear();
    HttpRequest own = request_of(request);
    std::optional<HttpResponse> refused = refusal_of_framing(own);
    const bool leaves_body = refused.has_value() || has_unread_body(own);
    if (!refused) refused = call([&] { return handler_.before_body(own); });
    if (!refused) refused = reserve_body(memory_of_body(own));
    const bool closes = refused && (leaves_body || refused->closes);
    current->reach(closes, length_of_body(own));
    // Hide a form's type from the library, so that it does not parse the form: its parser overflows the stack at a long
    // header.
    current->form_type = own.is_multipart ? own.header("content-type") : "";
    if (own.is_multipart) library_request.headers.erase("Content-Type");
    if (!refused) return false;
    if (closes) response.set_header("Connection", "close");
    send(*refused, own, response);
    return true;
  }

  /// Replaces the body of a form by its parts.
  static void read_form(HttpRequest& request) {
    if (current->form_type.empty()) return;
    request.is_multipart = true;
    request.parts = parse_multipart(request.body, current->form_type);
    request.body = {};
  }

  /// Counts the memory of a body that will be read. Refuses it if other bodies take the memory.
  std::optional<HttpResponse> reserve_body(uint64_t bytes) {
    current->body_bytes = bytes;
    if ((body_bytes_ += bytes) <= kMostBytesOfBodies) return std::nullopt;
    HttpResponse busy = error_response(503, "busy", "too many large requests come at the same time", "try again later");
    busy.headers["Retry-After"] = "5";
    busy.closes = true;
    return busy;
  }

  /// Returns the handler's answer. If the handler throws, returns an answer that reports the error.
  template <typename Handler>
  static auto call(const Handler& handler) -> decltype(handler()) {
    try {
      return handler();
    } catch (const Error& error) {
      return error_response(error.kind() == ErrorKind::bad_input ? 400 : 500, "invalid_value", error.what(),
                            error.remedy(), error.field());
    } catch (const std::exception& error) {
      const std::string id = request_id();  // clients must not see the cause, which may name files
      std::cerr << "error: request " + id + ": " + error.what() + "\n";
      HttpResponse response =
          error_response(500, "server_error", "internal error in request " + id, "see the server's output");
      response.headers["x-request-id"] = id;
      return response;
    }
  }

  static void send(const HttpResponse& from, const HttpRequest& request, httplib::Response& to) {
    to.status = from.status;
    for (const auto& [name, value] : from.headers) to.set_header(name.c_str(), value);
    add_usual_headers(to);
    if (from.stream) return send_stream(from, to);
    if (!from.file.empty()) return send_file(from, request, to);
    if (!from.body.empty()) to.set_content(from.body, from.type.c_str());
  }

  HttpHandler& handler_;
  const HttpTimes times_;
  int port_ = 0, spare_socket_ = -1;
  const int most_connections_ = most_connections();
  // There are four more threads than connections. They tell further clients that the server is busy.
  ConnectionThreads threads_{static_cast<size_t>(most_connections_) + 4};
  std::atomic<int> connections_ = 0;
  std::atomic<uint64_t> body_bytes_ = 0;
  std::atomic<bool> stopping_ = false, ended_ = false;
};

}  // namespace

void check_http_server() {}

std::unique_ptr<HttpServer> open_http_server(const HttpOptions& options, HttpHandler& handler) {
  return std::make_unique<HttplibServer>(options, handler);
}

}  // namespace sparsereel::app::serve
