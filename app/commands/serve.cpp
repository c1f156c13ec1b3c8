// `sparsereel serve`: declares its options and starts the server.
#include "app/serve/server.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "app/commands/commands.h"
#include "app/options/option_group.h"

namespace sparsereel::app {
namespace {

using serve::ServeOptions;

void add_server_options(CLI::App& command, ServeOptions& options) {
  const OptionGroup server(command, "Server");
  server.add("--host", options.http.host,
             {.help = "address to listen on (default 127.0.0.1, this machine only)",
              .manual = R"(Names the address to listen on. Only this machine can reach the default. Other machines on
                  the network can reach other addresses, which therefore need --api-key-file or --no-auth.)",
              .example = "sparsereel serve --host 0.0.0.0 --api-key-file key.txt"},
             "ADDRESS");
  server.add("--port", options.http.port,
             {.help = "port to listen on; 0 takes a free one (default 8000)",
              .manual = R"(Sets the port. With 0 the system chooses a free port, which the first line names.)",
              .example = "sparsereel serve --port 9000"},
             "N");
  server.add("--api-key-file", options.key_file,
             {.help = "let in only clients that send the key in this file",
              .manual = R"(Names a file with a key. Clients send it as 'Authorization: Bearer KEY', as OpenAI's
                  clients do; the browser page asks for it once. Only the page, /health and /session need no key.)",
              .example = "sparsereel serve --api-key-file key.txt"},
             "FILE");
  server.flag("--no-auth", options.no_auth,
              {.help = "let in everybody, whatever --host is",
               .manual = R"(Allows a --host that other machines on the network can reach, without a key. Everybody who
                   can reach it can then make, see and delete videos.)",
               .example = "sparsereel serve --host 0.0.0.0 --no-auth",
               .in_help = InHelp::all});
  server.add("--allow-host", options.allowed_hosts,
             {.help = "another name by which clients call this server; repeat it for several",
              .manual = R"(Lets requests in whose Host header has this name, such as the name of a proxy. Requests
                  with other names are refused, because another site's page could use such a name to reach this
                  server.)",
              .example = "sparsereel serve --allow-host video.example.org",
              .in_help = InHelp::all},
             "NAME");
}

void add_store_options(CLI::App& command, ServeOptions& options) {
  const OptionGroup videos(command, "Videos");
  videos.add(
      "-o,--output-dir", options.folder,
      {.help = "folder of the videos (default videos-served)",
       .manual = R"(Names the folder where videos, their records and uploaded pictures go. The next server that uses
           the folder serves the finished videos and makes the others.)",
       .example = "sparsereel serve -o videos"},
      "DIR");
  videos.add(
      "--gpus-per-video", options.gpus_per_video,
      {.help = "how many of --gpus make a video together (default 1)",
       .manual = R"(Lets this many GPUs make each video together. --gpus must be a multiple of it. If both are equal,
           all GPUs make one video after the other.)",
       .example = "sparsereel serve -m MODEL --gpus 4 --gpus-per-video 2",
       .in_help = InHelp::all},
      "N");
  videos.add("--queue", options.queue,
             {.help = "how many videos may wait (default 100)",
              .manual = R"(Limits the queue. A request beyond it is refused with status 429.)",
              .example = "sparsereel serve --queue 10"},
             "N");
  videos.add("--keep", options.keep,
             {.help = "remove finished videos after a time or beyond a size: 7d, 12h, 20GB (default: never)",
              .manual = R"(Says how long finished videos are kept: for a number of days or hours, or until all of them
                  together are larger than this size; then the oldest are removed first. Other files in the folder are
                  never removed.)",
              .example = "sparsereel serve --keep 7d"},
             "TIME|SIZE");
  videos.add("--lora-dir", options.lora_dir,
             {.help = "folder of LoRAs that requests may name",
              .manual = R"(Names a folder of .safetensors. A request names a LoRA, without the ending, in its
                  field lora, such as style or style:0.8. Without this option requests cannot use LoRAs.)",
              .example = "sparsereel serve -m MODEL --lora-dir loras",
              .in_help = InHelp::all},
             "DIR");
  videos.add("--profile-dir", options.profile_dir,
             {.help = "folder of profiles that requests may name",
              .manual = R"(Names a folder of profiles that 'sparsereel tune' wrote. A request names a profile, without
                  the ending, in its field profile.)",
              .example = "sparsereel serve -m MODEL --profile-dir profiles",
              .in_help = InHelp::all},
             "DIR");
}

}  // namespace

void add_serve(CLI::App& program, CommandLine& line) {
  CLI::App* command =
      program.add_subcommand("serve", "Makes videos for clients over HTTP, and for a page in a browser");
  command->footer("sparsereel serve -m MODEL");
  const auto options = std::make_shared<ServeOptions>();
  add_server_options(*command, *options);
  add_store_options(*command, *options);
  add_shared_options(*command, line, Command::serve);
  command->callback([&line, options] {
    line.collect();
    line.check_files(Command::serve, {{"--api-key-file", options->key_file}});
    serve::serve(*options, line.settings);
  });
}

}  // namespace sparsereel::app
