// The program's commands. Each adds itself, with all its options, in the file of its name, and runs where the command
// line names it: it throws Error, and fills the report of `line`. `line` must outlive the parsing.
#pragma once

#include "app/commands/command_line.h"

namespace sparsereel::app {

void add_generate(CLI::App& program, CommandLine& line);    // one prompt -> one video, or some with other seeds
void add_batch(CLI::App& program, CommandLine& line);       // a prompt set -> a folder of videos and its manifests
void add_decode(CLI::App& program, CommandLine& line);      // saved latents -> a video
void add_bench(CLI::App& program, CommandLine& line);       // attention, whole videos and quality, measured here
void add_tune(CLI::App& program, CommandLine& line);        // the best setting for a model -> a profile
void add_inspect(CLI::App& program, CommandLine& line);     // what a checkpoint, a file of weights or a video holds
void add_config(CLI::App& program, CommandLine& line);      // what would run, and where each value comes from
void add_completion(CLI::App& program, CommandLine& line);  // a script for bash, zsh or fish
void add_reference(CLI::App& program, CommandLine& line);   // the manual, as text or for man
void add_doctor(CLI::App& program, CommandLine& line);      // what this machine and build offer, and what is missing

}  // namespace sparsereel::app
