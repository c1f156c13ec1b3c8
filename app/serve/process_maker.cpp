// Both ends of the line between the server's process and the process of a GPU.
#include "app/serve/process_maker.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <poll.h>

#include <chrono>
#include <thread>
#include <utility>

#include "app/jobs/last_line.h"
#include "app/jobs/report.h"
#include "app/json_fields.h"
#include "app/serve/local_maker.h"
#include "models/layers/cpu_threads.h"
#include "models/store/weights/device.h"

namespace sparsereel::app::serve {
namespace {

using std::chrono::milliseconds;

nlohmann::json json_of(const Error& error) {
  return {{"kind", static_cast<int>(error.kind())},
          {"problem", error.problem()},
          {"remedy", error.remedy()},
          {"field", error.field()}};
}

Error error_in(const nlohmann::json& json) {
  return {static_cast<ErrorKind>(json.at("kind").get<int>()),
          text_of(json, "problem"),
          text_of(json, "remedy"),
          {.field = text_of(json, "field")}};
}

nlohmann::json json_of(const MadeVideo& made) {
  nlohmann::json json = {{"recipe", made.recipe},
                         {"decode_seconds", made.decode_seconds},
                         {"write_seconds", made.write_seconds},
                         {"code", made.code}};
  if (made.failure) json["failure"] = json_of(*made.failure);
  return json;
}

MadeVideo made_video_in(const nlohmann::json& json) {
  MadeVideo made = {.recipe = json.at("recipe"),
                    .decode_seconds = number_of(json, "decode_seconds").value_or(0),
                    .write_seconds = number_of(json, "write_seconds").value_or(0),
                    .code = text_of(json, "code")};
  if (json.contains("failure")) made.failure = error_in(json.at("failure"));
  return made;
}

/// Sends each report of the maker to the server's process.
class LineObserver final : public MakingObserver {
 public:
  explicit LineObserver(sets::LineSocket& line) : line_(line) {}

  void stage(const std::string& name) override { line_.send({{"stage", name}}); }
  void step(int64_t step, int64_t steps, double seconds) override {
    line_.send({{"step", nlohmann::json::array({step, steps, seconds})}});
  }
  void decoded(double share) override { line_.send({{"decoded", share}}); }
  void preview(int64_t step, std::string png) override {
    line_.send({{"preview", nlohmann::json::array({step, std::move(png)})}});
  }
  void warn(const std::string& id, const std::string& warning) override {
    line_.send({{"warning", nlohmann::json::array({id, warning})}});
  }
  void ended(const std::string& id, const MadeVideo& made) override {
    line_.send({{"end", nlohmann::json::array({id, json_of(made)})}});
  }

 private:
  sets::LineSocket& line_;
};

/// Makes videos until the server's process closes the line. If this throws an error, the process ends.
void make_videos(sets::LineSocket& line, LocalMaker& maker) {
  const auto is_asked = [&] { return line.is_ready(); };
  for (;;) {
    maker.collect(is_asked);
    const nlohmann::json message = line.receive();
    if (message.is_null()) return;
    if (!message.contains("video")) continue;  // a request to cancel a video that has already ended
    const VideoRecord record = read_record(dump(message.at("video")), "a record of the server");
    maker.make(record, is_asked);
    line.send({{"free", true}});
  }
}

}  // namespace

ProcessMaker::ProcessMaker(GpusOfAVideo gpus)
    : gpus_(std::move(gpus)),
      limits_(find_group_limits(process_environment)),
      link_{.data = -1, .control = -1},
      line_(-1),
      patience_(limits_.start) {
  static std::mutex starting;  // starts one process at a time, because a start may set an environment variable
  const std::lock_guard lock(starting);
  std::vector<std::vector<models::Link>> links = models::local_links(2);
  children_ = std::make_unique<Children>(links, std::vector<std::string>{"", gpus_.front()}, own_command_line());
  models::close_links(links[1]);
  link_ = links[0][1];
  line_ = sets::LineSocket(link_.data);
  children_->watch([this](int64_t, const std::string& how) {
    const std::lock_guard own(mutex_);
    how_ = how.empty() ? "ended" : how;
  });
  line_.send({{"gpus", gpus_}});
}

ProcessMaker::~ProcessMaker() {
  models::close_links({link_});  // the process then ends
  children_.reset();
}

/// Waits for the next message and returns it. Returns null if `enough`, which is polled at least every 20 ms, returns
/// true.
nlohmann::json ProcessMaker::next(const std::function<bool()>& enough) {
  constexpr milliseconds kLook{20};
  for (;;) {
    if (auto message = line_.take()) return *std::move(message);
    if (enough()) return nullptr;
    const milliseconds left = patience_.step();
    if (left.count() <= 0) {
      children_->kill(1);  // a process that hangs or is stopped (SIGSTOP) must be killed
      lose("did not answer within " + duration_text(std::chrono::duration<double>(patience_.limit()).count()));
    }
    pollfd ready = {.fd = line_.number(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(std::min(left, kLook).count())) <= 0) continue;
    nlohmann::json message = line_.receive();
    if (message.is_null()) lose({});
    patience_ = models::Patience(limits_.call);
    return message;
  }
}

/// Throws MakerLost with the reason `why`. If `why` is empty, the message says how the process ended.
void ProcessMaker::lose(const std::string& why) {
  lost_ = true;
  unfinished_ = 0;
  std::string how = why;
  for (int attempt = 0; attempt < 50 && how.empty(); ++attempt) {
    std::this_thread::sleep_for(milliseconds(10));
    const std::lock_guard lock(mutex_);
    how = how_;
  }
  throw MakerLost(ErrorKind::failed, "the process of " + name_of_gpus(gpus_) + " " + (how.empty() ? "ended" : how),
                  "see the server's output");
}

void ProcessMaker::open(MakingObserver& observer) {
  observer_ = &observer;
  for (;;) {
    const nlohmann::json message = next([] { return false; });
    if (message.contains("ready")) return;
    if (message.contains("failed")) throw error_in(message.at("failed"));
  }
}

/// Passes a message of the GPU's process on to the observer.
void ProcessMaker::hear(const nlohmann::json& message) {
  if (const auto stage = message.find("stage"); stage != message.end()) observer_->stage(*stage);
  if (const auto step = message.find("step"); step != message.end())
    observer_->step(step->at(0), step->at(1), step->at(2));
  if (const auto share = message.find("decoded"); share != message.end()) observer_->decoded(*share);
  if (const auto preview = message.find("preview"); preview != message.end())
    observer_->preview(preview->at(0), preview->at(1));
  if (const auto warning = message.find("warning"); warning != message.end())
    observer_->warn(warning->at(0), warning->at(1));
  if (const auto end = message.find("end"); end != message.end()) {
    --unfinished_;
    observer_->ended(end->at(0), made_video_in(end->at(1)));
  }
}

void ProcessMaker::make(const VideoRecord& record, const std::function<bool()>& cancelled) {
  bool told = false;
  line_.send({{"video", record_on_disk(record, {})}});
  ++unfinished_;
  for (;;) {
    const nlohmann::json message = next([&] {
      if (!told && cancelled()) told = line_.send({{"cancel", true}});
      return false;
    });
    if (message.contains("free")) return;
    hear(message);
  }
}

bool ProcessMaker::collect(const std::function<bool()>& enough) {
  while (unfinished_ > 0) {
    const nlohmann::json message = next(enough);
    if (message.is_null()) return false;
    hear(message);
  }
  return true;
}

bool ProcessMaker::is_alive() {
  const std::lock_guard lock(mutex_);
  return !lost_ && how_.empty();
}

void make_for_server(const ServedModel& model, const std::filesystem::path& folder, const StartedRank& gpu) {
  for (const int link : {gpu.links.front().data, gpu.links.front().control})
    fcntl(link, F_SETFD, FD_CLOEXEC);  // a child that kept the socket would hide the end of this process
  sets::LineSocket line(gpu.links.front().data);
  const sets::Heartbeat heartbeat(line, sets::heartbeat_for(find_group_limits(process_environment).call));
  const nlohmann::json first = line.receive();
  if (first.is_null()) return;
  const auto gpus = first.at("gpus").get<GpusOfAVideo>();
  const int64_t processes = model.settings.whole("gpus").value_or(1);
  if (const auto threads = model.settings.whole("threads"))
    models::set_threads(static_cast<int>(*threads));
  else if (gpu.device == "cpu")
    models::set_threads(threads_of_each(processes));
  models::start_device(gpu.device);
  Team team(gpus, at::get_num_threads(), gpus.size() > 1);
  LineObserver observer(line);
  LocalMaker maker(model, folder, gpu.device, &team);
  try {
    maker.open(observer);
  } catch (const Error& error) {
    line.send({{"failed", json_of(error)}});
    throw;
  }
  line.send({{"ready", true}});
  make_videos(line, maker);
  team.finish();
}

}  // namespace sparsereel::app::serve
