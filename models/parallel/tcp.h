// TCP between the hosts of a group: addresses, listeners, and waits with a limit. No tensors.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hilbert/error.h"
#include "models/parallel/patience.h"

namespace sparsereel::models {

class Socket {
 public:
  explicit Socket(int number = -1) : number_(number) {}
  ~Socket();
  Socket(Socket&& other) noexcept : number_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

struct TcpAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

/// Returns an error whose message is `what` and the system's text for the error `number`.
Error network_failure(const std::string& what, int number = errno);

/// Returns the addresses of a host, given by name or in numbers. Throws Error if it has none.
std::vector<TcpAddress> addresses_of_host(const std::string& host, uint16_t port);
/// Returns "10.0.0.7".
std::string numeric_host(const TcpAddress& address);
bool is_loopback(const TcpAddress& address);

/// Listening sockets, and the address at which other ranks reach them.
struct Listeners {
  std::vector<Socket> sockets;
  std::string host;  // numeric address
  uint16_t port = 0;
};

/// Listens on those addresses of this host that are on the route to `host`, so that other networks cannot connect.
/// `host` may be this host. On some systems, such as Debian, a host's own name stands for its loopback address, while
/// other hosts know the real address. If `host` is such a name, listens on all addresses. With port 0, the system
/// chooses a port. Throws Error if it cannot listen.
Listeners listen_towards(const std::string& host, uint16_t port, int backlog);

/// Waits until the socket is ready for `events` of poll(). Returns false if the limit is over.
bool wait_ready(int socket, short events, Patience& patience);
/// Connects within the limit, without blocking. On failure, returns a socket of -1 and sets errno.
Socket connect_within(const TcpAddress& address, Patience& patience);
/// Send or receive all bytes of a non-blocking socket. Return false if the other end is gone or the limit is over.
bool send_within(int socket, const void* data, size_t bytes, Patience& patience);
bool receive_within(int socket, void* data, size_t bytes, Patience& patience);
/// Returns true if the other end has closed the connection.
bool has_hung_up(int socket);

/// Makes the system send small messages at once.
void send_without_delay(int socket);
/// Lets the system end a connection whose host has vanished, after `limit` without acknowledgment. Use it only if
/// the process at the other end reads all the time: a process that is alive but does not read for `limit` is cut off
/// too.
void notice_vanished_host(int socket, std::chrono::milliseconds limit);

}  // namespace sparsereel::models
