// Says what to download where -m names a published model and not a folder.
#pragma once

#include <string>
#include <vector>

#include "hilbert/error.h"
#include "models/store/configs/config_file.h"

namespace sparsereel::app {

/// A way to get a model, as people read it.
struct DownloadAdvice {
  std::string title;                  // "14B in fp8, 21.3 GB"; empty where nothing is to be said
  std::vector<std::string> commands;  // downloads first, the last one uses them
};

/// How to get the model of a YAML, by each of its repositories.
std::vector<DownloadAdvice> download_advice(const models::Architecture& architecture);

/// Bytes of the model's weights in 16 bits: no fewer are downloaded of a repository that has no smaller ones.
double bytes_in_16_bits(const models::Architecture& architecture);

/// The error of a model that is not there: with the commands that download and use it where `model` is a published
/// name or nearly one, with a general one where it looks like a repository, else `error`.
Error missing_model(const std::string& model, const Error& error);

}  // namespace sparsereel::app
