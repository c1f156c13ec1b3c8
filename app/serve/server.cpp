// Checks the options, starts the parts, and stops them one after the other.
#include "app/serve/server.h"

#include <sys/stat.h>

#include <atomic>
#include <exception>
#include <functional>
#include <iostream>
#include <thread>

#include "app/jobs/interrupt.h"
#include "app/jobs/outputs.h"
#include "app/jobs/used_files.h"
#include "app/options/nearest.h"
#include "app/serve/access.h"
#include "app/serve/api.h"
#include "app/serve/local_maker.h"
#include "app/serve/process_maker.h"
#include "app/serve/workers.h"
#include "hilbert/error.h"
#include "models/engine/failure.h"
#include "models/files/regular_file.h"
#include "models/layers/cpu_threads.h"
#include "models/store/weights/device.h"

namespace sparsereel::app::serve {
namespace {

namespace fs = std::filesystem;

std::string read_key(const fs::path& file) {
  if (file.empty()) return {};
  constexpr uint64_t kMostKeyBytes = 4096;
  std::string key = models::read_regular_file(file, kMostKeyBytes, "write the key into it");
  while (!key.empty() && std::isspace(static_cast<unsigned char>(key.back())) != 0) key.pop_back();
  if (key.empty()) throw bad_file(file, "is empty", "write the key into it");
  return key;
}

void check_folder(const char* option, const fs::path& folder) {
  std::error_code ignored;
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    throw bad_input(std::string(option) + " " + folder.string() + " is not a folder", "name a folder");
}

void check_serve_options(const ServeOptions& options) {
  check_http_server();
  check_range("--port", options.http.port, 0, 65535);
  check_range("--queue", options.queue, 1, 100'000);
  if (!is_loopback(options.http.host) && options.key_file.empty() && !options.no_auth)
    throw bad_input("--host " + options.http.host + " lets others on the network make videos",
                    "name a file with a key with --api-key-file, or give --no-auth to let everybody in");
  check_folder("--lora-dir", options.lora_dir);
  check_folder("--profile-dir", options.profile_dir);
}

/// Returns the GPUs of each of the videos that the server makes at the same time. Empty if this process alone makes the
/// videos.
std::vector<GpusOfAVideo> gpus_of_server(const ServeOptions& options, const Settings& settings) {
  if (settings.whole("gpus").value_or(1) == 1 && options.gpus_per_video == 1) return {};
  return gpus_of_videos(settings, options.gpus_per_video);
}

std::vector<Worker::StartMaker> start_makers_of(const std::vector<GpusOfAVideo>& gpus, const ServedModel& model,
                                                const VideoStore& store) {
  if (gpus.empty()) return {[&] { return std::make_unique<LocalMaker>(model, store.folder()); }};
  std::vector<Worker::StartMaker> all;
  for (const GpusOfAVideo& each : gpus) all.emplace_back([each] { return std::make_unique<ProcessMaker>(each); });
  return all;
}

/// Checks that a video can be written, before the first is asked for.
void check_can_write(const Settings& settings, const VideoStore& store) {
  RunOptions run = read_run_options(settings);
  run.output = store.files("check").video;
  check_video(run);
}

ServedModel served_model(const ServeOptions& options, const Settings& settings) {
  return {.settings = settings,
          .name = name_of_model(settings),
          .folders = {.loras = options.lora_dir, .profiles = options.profile_dir},
          .hidden = HiddenPaths({options.folder, options.lora_dir, options.profile_dir}, settings)};
}

std::string shown_url(const ServeOptions& options, int port) {
  const bool is_v6 = options.http.host.find(':') != std::string::npos;
  return "http://" + (is_v6 ? "[" + options.http.host + "]" : options.http.host) + ":" + std::to_string(port) + "/";
}

/// The thread that answers requests.
class Listener {
 public:
  explicit Listener(HttpServer& server)
      : thread_([this, &server] {
          try {
            server.run();
          } catch (...) {
            failure_ = std::current_exception();
          }
          ended_ = true;
        }) {}
  ~Listener() { join(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  bool has_ended() const { return ended_; }
  /// Waits for the thread. Returns the error that ended the server; null if stop() ended it.
  std::exception_ptr join() {
    if (thread_.joinable()) thread_.join();
    return failure_;
  }

 private:
  std::exception_ptr failure_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

/// Waits for a signal, or for the workers or the listener to fail. Calls `ready` once the model is open.
void wait_for_end(Workers& workers, const Listener& listener, const std::function<void()>& ready) {
  constexpr std::chrono::milliseconds kLook{50};  // look often, because a signal wakes no waiting thread
  for (bool was_ready = false; !interrupted() && !workers.failure() && !listener.has_ended();) {
    if (!was_ready && workers.is_ready()) {
      was_ready = true;
      ready();
    }
    workers.warn_of_failures();
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

void serve(const ServeOptions& options, const Settings& settings) {
  if (const auto gpu = find_started_rank(process_environment)) {
    models::share_host_memory(std::ssize(gpus_of_server(options, settings)));
    return make_for_server(served_model(options, settings), fs::absolute(options.folder), *gpu);
  }
  check_serve_options(options);
  const std::vector<GpusOfAVideo> gpus = gpus_of_server(options, settings);
  const std::string key = read_key(options.key_file);
  umask(S_IRWXG | S_IRWXO);  // only the owner may read prompts and videos
  const bool is_quiet = settings.flag("quiet");
  const ServedModel model = served_model(options, settings);
  VideoStore store(options.folder, parse_keep_rule(options.keep));
  check_can_write(settings, store);
  if (const auto threads = settings.whole("threads")) models::set_threads(static_cast<int>(*threads));
  models::start_device(read_request(settings).device);
  EventHub events;
  Metrics metrics;
  Access access(options.http.host, options.allowed_hosts, key);
  Publisher publisher(store, events);
  Workers workers({.model = model, .store = store, .publisher = publisher, .metrics = metrics, .is_quiet = is_quiet},
                  start_makers_of(gpus, model, store));
  RequestCheck check;
  Api api({.model = model,
           .store = store,
           .events = events,
           .publisher = publisher,
           .metrics = metrics,
           .access = access,
           .workers = workers,
           .check = check,
           .most_waiting = static_cast<size_t>(options.queue)});
  const std::unique_ptr<HttpServer> server = open_http_server(options.http, api);
  if (!is_loopback(options.http.host) && key.empty())
    std::cerr << "warning: everybody who reaches " << options.http.host << " can make videos here, without a key\n";
  Listener listener(*server);
  workers.start();
  std::cout << "serves " << model.name << " on " << shown_url(options, server->port()) << std::endl;
  wait_for_end(workers, listener, [&] {
    if (is_quiet) return;
    try {
      say_terms(read_run_options(settings), check.spec(model));
    } catch (...) {  // the model's files are gone; each video will fail with this error
      std::cerr << "warning: " + std::string(models::as_error(std::current_exception()).what()) + "\n";
    }
    std::cerr << "ready\n";
  });
  api.stop();
  workers.stop();
  events.close();
  server->stop();
  const std::exception_ptr unheard = listener.join();
  if (const std::exception_ptr failure = workers.failure()) std::rethrow_exception(failure);
  if (unheard) std::rethrow_exception(unheard);
  if (!is_quiet) std::cout << "stopped; " << store.waiting() << " videos wait for the next server\n";
}

}  // namespace sparsereel::app::serve
