// Wraps Linux sockets, all of them non-blocking.
#include "models/parallel/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <system_error>

namespace sparsereel::models {
namespace {

constexpr const char* kNetworkRemedy =
    "check that the hosts can reach each other, and that MASTER_ADDR is rank 0's host";

sockaddr* general(TcpAddress& address) {
  return reinterpret_cast<sockaddr*>(&address.storage);
}
const sockaddr* general(const TcpAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

in_port_t& port_of(TcpAddress& address) {
  return address.storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port
                                               : reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port;
}

std::optional<TcpAddress> own_address(int socket) {
  TcpAddress own{.storage = {}, .size = sizeof(sockaddr_storage)};
  if (getsockname(socket, general(own), &own.size) != 0) return std::nullopt;
  return own;
}

/// Returns this host's address on the route to `there`. Nothing is sent.
std::optional<TcpAddress> address_facing(const TcpAddress& there) {
  const Socket socket(::socket(there.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0 || connect(socket.get(), general(there), there.size) != 0) return std::nullopt;
  return own_address(socket.get());
}

TcpAddress any_address(sa_family_t family) {
  TcpAddress address;
  address.storage.ss_family = family;  // zeros mean all addresses
  address.size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return address;
}

/// Returns true if `host` is "localhost" or a numeric address. Another name may stand for a loopback address on this
/// host, and for this host's real address elsewhere.
bool names_loopback(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  return host == "localhost" || inet_pton(AF_INET, host.c_str(), &four) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &six) == 1;
}

Socket listen_on(TcpAddress address, uint16_t port, int backlog) {
  port_of(address) = htons(port);
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (socket.get() >= 0 && address.storage.ss_family == AF_INET6)  // IPv4 has its own listeners
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (socket.get() >= 0) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (socket.get() < 0 || bind(socket.get(), general(address), address.size) != 0 ||
      listen(socket.get(), backlog) != 0) {
    const int error = errno;
    socket = Socket();
    errno = error;
  }
  return socket;
}

}  // namespace

Socket::~Socket() {
  if (number_ >= 0) close(number_);
}

Error network_failure(const std::string& what, int number) {
  return run_failure(what + ": " + std::generic_category().message(number), kNetworkRemedy);
}

std::vector<TcpAddress> addresses_of_host(const std::string& host, uint16_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) throw run_failure("host " + host + " was not found: " + gai_strerror(error), kNetworkRemedy);
  std::vector<TcpAddress> all;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    all.emplace_back().size = each->ai_addrlen;
    std::memcpy(&all.back().storage, each->ai_addr, each->ai_addrlen);
  }
  freeaddrinfo(found);
  return all;
}

std::string numeric_host(const TcpAddress& address) {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(general(address), address.size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

bool is_loopback(const TcpAddress& address) {
  const std::string host = numeric_host(address);
  return host.starts_with("127.") || host == "::1" || host.starts_with("::ffff:127.");
}

Listeners listen_towards(const std::string& host, uint16_t port, int backlog) {
  Listeners all{.sockets = {}, .host = {}, .port = port};
  int error = EADDRNOTAVAIL;
  for (const TcpAddress& there : addresses_of_host(host, port)) {
    const std::optional<TcpAddress> facing = address_facing(there);
    if (!facing) {
      error = errno;
      continue;
    }
    const TcpAddress on = !is_loopback(there)    ? *facing
                          : names_loopback(host) ? there
                                                 : any_address(there.storage.ss_family);
    Socket socket = listen_on(on, port, backlog);
    if (socket.get() < 0) {
      error = errno;
      continue;
    }
    if (std::optional<TcpAddress> own = own_address(socket.get()); own && all.sockets.empty()) {
      all.host = numeric_host(*facing);
      all.port = ntohs(port_of(*own));
    }
    all.sockets.push_back(std::move(socket));
    if (port == 0) break;  // another listener would get another port
  }
  if (all.sockets.empty()) throw network_failure("cannot listen for the other ranks on the network of " + host, error);
  return all;
}

bool wait_ready(int socket, short events, Patience& patience) {
  for (;;) {
    const auto wait = patience.step();
    if (wait.count() == 0) return false;
    pollfd ready = {.fd = socket, .events = events, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(wait.count())) > 0) return true;
  }
}

Socket connect_within(const TcpAddress& address, Patience& patience) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0 || connect(socket.get(), general(address), address.size) == 0) return socket;
  int error = errno;
  socklen_t size = sizeof(error);
  if (error == EINPROGRESS) {
    if (!wait_ready(socket.get(), POLLOUT, patience))
      error = ETIMEDOUT;
    else
      getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) return socket;
  socket = Socket();
  errno = error;
  return socket;
}

bool send_within(int socket, const void* data, size_t bytes, Patience& patience) {
  for (const auto* from = static_cast<const char*>(data); bytes > 0;) {
    if (!wait_ready(socket, POLLOUT, patience)) return false;
    const ssize_t count = send(socket, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return false;
    from += std::max<ssize_t>(count, 0);
    bytes -= static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  return true;
}

bool receive_within(int socket, void* data, size_t bytes, Patience& patience) {
  for (auto* to = static_cast<char*>(data); bytes > 0;) {
    if (!wait_ready(socket, POLLIN, patience)) return false;
    const ssize_t count = recv(socket, to, bytes, MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return false;
    to += std::max<ssize_t>(count, 0);
    bytes -= static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  return true;
}

bool has_hung_up(int socket) {
  char next = 0;
  const ssize_t count = recv(socket, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

void send_without_delay(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void notice_vanished_host(int socket, std::chrono::milliseconds limit) {
  const auto milliseconds = static_cast<int>(limit.count());
  // `seconds` is the idle time before the first probe, and the time between two probes.
  const int on = 1, seconds = std::max(1, milliseconds / 5000), probes = 3;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
}

}  // namespace sparsereel::models
