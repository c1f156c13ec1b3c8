// The program's commands. Each function adds one command with all its options, and is defined in the file with the
// command's name. A command runs when the command line names it, fills the report of `line`, and throws Error if it
// fails. `line` must outlive parsing.
#pragma once

#include "app/commands/command_line.h"

namespace sparsereel::app {

void add_generate(CLI::App& program,
                  CommandLine& line);                    // makes a video from a prompt, or several with different seeds
void add_batch(CLI::App& program, CommandLine& line);    // makes a folder of videos and manifests from a prompt set
void add_serve(CLI::App& program, CommandLine& line);    // makes videos for clients over HTTP
void add_decode(CLI::App& program, CommandLine& line);   // makes a video from saved latents
void add_bench(CLI::App& program, CommandLine& line);    // measures attention, videos and quality on this machine
void add_tune(CLI::App& program, CommandLine& line);     // finds the best settings for a model and writes a profile
void add_inspect(CLI::App& program, CommandLine& line);  // shows what a model, file of weights or video holds
void add_config(CLI::App& program, CommandLine& line);   // shows what would run, and each value's source
void add_completion(CLI::App& program, CommandLine& line);  // prints a script for bash, zsh or fish
void add_reference(CLI::App& program, CommandLine& line);   // prints the manual, as text or for man
void add_doctor(CLI::App& program, CommandLine& line);      // shows what this machine and build can do

}  // namespace sparsereel::app
