// TCP between the hosts of a group: addresses, listeners, and waits that end. No tensors.
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

/// Owns a descriptor.
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

/// The error of a system call, with its number.
Error network_failure(const std::string& what, int number = errno);

/// All addresses of a host, by its name or in numbers. Throws Error where it has none.
std::vector<TcpAddress> addresses_of_host(const std::string& host, uint16_t port);
/// "10.0.0.7"
std::string numeric_host(const TcpAddress& address);
/// Returns true if the address leads to this host alone.
bool is_loopback(const TcpAddress& address);

/// Sockets that wait for calls, and the address by which others reach them.
struct Listeners {
  std::vector<Socket> sockets;
  std::string host;  // in numbers
  uint16_t port = 0;
};

/// Listens on this host's addresses that face `host`, which may be itself; nobody reaches them by another network.
/// A host's own name may stand for its loopback address, as on Debian, while other hosts know the real one: only then
/// are these all addresses. port: 0 leaves it to the system. Throws Error.
Listeners listen_towards(const std::string& host, uint16_t port, int backlog);

/// Waits until the socket is ready for `events` of poll(). False: the limit is over.
bool wait_ready(int socket, short events, Patience& patience);
/// Connects within the limit; the socket never blocks. A socket of -1: it failed, and errno tells why.
Socket connect_within(const TcpAddress& address, Patience& patience);
/// All bytes, of sockets that do not block. False: the other end is gone, or the limit is over.
bool send_within(int socket, const void* data, size_t bytes, Patience& patience);
bool receive_within(int socket, void* data, size_t bytes, Patience& patience);
/// Returns true if the other end has closed the connection.
bool has_hung_up(int socket);

/// Small messages go at once.
void send_without_delay(int socket);
/// Has the system end a connection whose other host has vanished: nothing confirmed what was sent for so long. Only a
/// socket that is always read may have it. The same limit ends a connection to a live process that reads nothing.
void notice_vanished_host(int socket, std::chrono::milliseconds limit);

}  // namespace sparsereel::models
