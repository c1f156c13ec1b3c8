// Reads --share, or the launcher's variables.
#include "app/jobs/batch/share.h"

#include "hilbert/error.h"
#include "hilbert/read_text.h"

namespace sparsereel::app::sets {
namespace {

void check(const Share& share) {
  if (share.size >= 1 && share.rank >= 0 && share.rank < share.size) return;
  throw bad_input(
      share.source + ": there is no share " + std::to_string(share.rank) + " of " + std::to_string(share.size),
      "shares of n are counted from 0/n to (n-1)/n");
}

}  // namespace

Share find_share(const std::string& option, const Environment& environment) {
  Share share;
  if (!option.empty()) {
    const size_t slash = option.find('/');
    const auto rank = parse_number<int64_t>(option.substr(0, slash));
    const auto size = slash == std::string::npos ? std::nullopt : parse_number<int64_t>(option.substr(slash + 1));
    if (!rank || !size)
      throw bad_input("--share " + option + " is not of the form i/n", "write for example --share 0/4");
    share = {.rank = *rank, .size = *size, .local_rank = {}, .source = "--share " + option};
    check(share);
    return share;
  }
  if (const auto launched = find_launched(environment))
    share = {
        .rank = launched->rank, .size = launched->size, .local_rank = launched->local_rank, .source = launched->source};
  return share;
}

}  // namespace sparsereel::app::sets
