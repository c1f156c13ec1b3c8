// Says what to download if -m names a published model that is not on this machine.
#pragma once

#include <string>
#include <vector>

#include "hilbert/error.h"
#include "models/store/configs/config_file.h"

namespace sparsereel::app {

/// One way to get a model, in words that people read.
struct DownloadAdvice {
  std::string title;                  // "14B in fp8, 21.3 GB"; may be empty
  std::vector<std::string> commands;  // downloads first; the last command uses them
};

/// Returns the ways to get the model of a YAML, one for each of its repositories.
std::vector<DownloadAdvice> download_advice(const models::Architecture& architecture);

/// Returns the bytes of the model's weights in 16 bits. A download from a repository without smaller weights has at
/// least this size.
double bytes_in_16_bits(const models::Architecture& architecture);

/// Returns the error for a model that does not exist. If `model` is a published name or close to one, the remedy holds
/// the commands that download and use it. If the working directory has a folder of that name, the remedy names the
/// folder instead. If `model` looks like another repository, the remedy is a general command for downloads. Otherwise
/// returns `error`.
Error missing_model(const std::string& model, const Error& error);

}  // namespace sparsereel::app
