// `sparsereel bench`: measures attention, pipelines and quality on this machine, and draws the results.
#include "app/commands/bench.h"

#include <CLI/CLI.hpp>

namespace sparsereel::app {

void add_bench(CLI::App& program, CommandLine& line) {
  CLI::App* bench = program.add_subcommand("bench", "Measures speed and quality on this machine");
  bench->require_subcommand(1);
  for (const auto& add : {add_bench_attention, add_bench_pipeline, add_bench_quality, add_bench_plot})
    add(*bench, line);
}

}  // namespace sparsereel::app
