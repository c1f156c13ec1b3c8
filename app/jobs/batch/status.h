// Sums up the manifests in a set's folder.
#pragma once

#include <filesystem>

#include "app/jobs/report.h"

namespace sparsereel::app::sets {

/// Sums up the manifests in `folder` for `sparsereel batch --status DIR`: fills the report and its last lines. Throws
/// Error if there is no manifest.
void show_status(const std::filesystem::path& folder, RunReport& report);

}  // namespace sparsereel::app::sets
