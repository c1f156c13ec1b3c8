// Creates and closes the sockets between the ranks of one machine.
#include "models/parallel/links.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "hilbert/error.h"

namespace sparsereel::models {

std::vector<std::vector<Link>> local_links(int64_t size) {
  const auto count = static_cast<size_t>(size);
  std::vector<std::vector<Link>> links(count, std::vector<Link>(count));
  const auto connect = [](int& one, int& other) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
      throw run_failure(std::string("cannot make the sockets of the ranks: ") + std::generic_category().message(errno),
                        "raise 'ulimit -n'");
    one = ends[0];
    other = ends[1];
  };
  try {
    for (size_t i = 0; i < count; ++i)
      for (size_t j = i + 1; j < count; ++j) {
        connect(links[i][j].data, links[j][i].data);
        connect(links[i][j].control, links[j][i].control);
      }
  } catch (...) {
    for (const std::vector<Link>& row : links) close_links(row);
    throw;
  }
  return links;
}

void close_links(const std::vector<Link>& links) {
  for (const Link& link : links)
    for (const int socket : {link.data, link.control})
      if (socket >= 0) close(socket);
}

}  // namespace sparsereel::models
