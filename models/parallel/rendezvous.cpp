// A rank listens, writes its address and a number that nobody can guess into the store, and calls all ranks below it.
#include "models/parallel/rendezvous.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <system_error>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

namespace sparsereel::models {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kNetworkRemedy = "see that the hosts reach each other, and that MASTER_ADDR is rank 0's host";

Error network_failure(const std::string& what, int number = errno) {
  return run_failure(what + ": " + std::generic_category().message(number), kNetworkRemedy);
}

class Socket {
 public:
  explicit Socket(int number = -1) : number_(number) {}
  ~Socket() {
    if (number_ >= 0) close(number_);
  }
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

sockaddr* general(sockaddr_storage& address) {
  return reinterpret_cast<sockaddr*>(&address);
}

struct Address {
  sockaddr_storage address{};
  socklen_t size = 0;
};

Address resolve(const std::string& host, uint16_t port, int type) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = type;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) throw run_failure("no host " + host + ": " + gai_strerror(error), kNetworkRemedy);
  Address result;
  std::memcpy(&result.address, found->ai_addr, found->ai_addrlen);
  result.size = found->ai_addrlen;
  freeaddrinfo(found);
  return result;
}

std::string numeric_host(sockaddr_storage address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(general(address), size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

/// This host's address on the way to that one. Nothing is sent.
std::string own_address_towards(const std::string& host, uint16_t port) {
  Address there = resolve(host, port, SOCK_DGRAM);
  const Socket socket(::socket(there.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (connect(socket.get(), general(there.address), there.size) != 0 ||
      getsockname(socket.get(), general(own), &size) != 0)
    throw network_failure("no way to " + host);
  return numeric_host(own, size);
}

/// On a port that the system chooses, of both kinds of addresses.
std::pair<Socket, uint16_t> listen_anywhere(int backlog) {
  Socket socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t size = sizeof(sockaddr_in6);
  if (socket.get() >= 0) {
    const int off = 0;
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    reinterpret_cast<sockaddr_in6*>(&address)->sin6_family = AF_INET6;
  } else {  // a host without
    socket = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    reinterpret_cast<sockaddr_in*>(&address)->sin_family = AF_INET;
    size = sizeof(sockaddr_in);
  }
  if (bind(socket.get(), general(address), size) != 0 || listen(socket.get(), backlog) != 0 ||
      getsockname(socket.get(), general(address), &size) != 0)
    throw network_failure("cannot listen for the other ranks");
  return {std::move(socket), ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port)};
}

/// A rank's line in the store.
struct Listener {
  std::string host, address, secret;
  uint16_t port = 0;

  std::string text() const { return host + " " + address + " " + std::to_string(port) + " " + secret; }
  static Listener of(const std::string& text) {
    Listener listener;
    std::istringstream(text) >> listener.host >> listener.address >> listener.port >> listener.secret;
    return listener;
  }
};

constexpr size_t kSecretBytes = 32;  // of text

std::string new_secret() {
  std::random_device random;
  std::array<char, 2 * kSecretBytes> text{};
  for (size_t i = 0; i < kSecretBytes; i += 8) std::snprintf(text.data() + i, 9, "%08x", random());
  return {text.data(), kSecretBytes};
}

// What a caller sends first: it knows the secret of whom it calls, so it is of this run.
struct Call {
  std::array<char, kSecretBytes> secret;
  int32_t rank;
  int32_t is_control;
};

/// A host that vanishes is noticed within seconds, and small messages go at once.
void tune(int socket) {
  const int on = 1, idle = 2, interval = 2, probes = 3, unsent_ms = 10'000;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unsent_ms, sizeof(unsent_ms));
}

Socket call(const Listener& there, const Call& words) {
  Address address = resolve(there.address, there.port, SOCK_STREAM);
  Socket socket(::socket(address.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(socket.get(), general(address.address), address.size) != 0)
    throw network_failure("no connection to " + there.address + " of host " + there.host);
  tune(socket.get());
  if (send(socket.get(), &words, sizeof(words), MSG_NOSIGNAL) != sizeof(words))
    throw network_failure("no connection to host " + there.host);
  return socket;
}

bool wait_readable(int socket, Clock::time_point end) {
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
  pollfd ready = {.fd = socket, .events = POLLIN, .revents = 0};
  return left > 0 && poll(&ready, 1, static_cast<int>(left)) > 0;
}

/// What a stranger says is not listened to for long.
bool read_call(int socket, Call& words, Clock::time_point end) {
  auto* to = reinterpret_cast<char*>(&words);
  for (size_t count = 0; count < sizeof(words);) {
    if (!wait_readable(socket, std::min(end, Clock::now() + std::chrono::seconds(2)))) return false;
    const ssize_t got = recv(socket, to + count, sizeof(words) - count, 0);
    if (got <= 0) return false;
    count += static_cast<size_t>(got);
  }
  return true;
}

Error missing_rank(int64_t rank, milliseconds limit) {
  return run_failure("rank " + std::to_string(rank) + " did not start within " +
                         std::to_string(std::chrono::duration_cast<std::chrono::seconds>(limit).count()) + " s",
                     "see why it did not, and that all ranks were started with the same command");
}

int& slot(Link& link, const Call& words) {
  return words.is_control != 0 ? link.control : link.data;
}

/// Those above this rank call it, twice each.
void answer_calls(int listener, const std::string& secret, int64_t rank, std::vector<Link>& links, milliseconds limit,
                  Clock::time_point end) {
  const auto size = static_cast<int64_t>(links.size());
  for (int64_t missing = 2 * (size - 1 - rank); missing > 0;) {
    if (!wait_readable(listener, end)) {
      for (int64_t other = rank + 1; other < size; ++other)
        if (links[static_cast<size_t>(other)].control < 0 || links[static_cast<size_t>(other)].data < 0)
          throw missing_rank(other, limit);
    }
    Socket socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    Call words{};
    if (socket.get() < 0 || !read_call(socket.get(), words, end)) continue;
    const std::string_view known(words.secret.data(), words.secret.size());
    if (known != secret || words.rank <= rank || words.rank >= size) continue;
    int& place = slot(links[static_cast<size_t>(words.rank)], words);
    if (place >= 0) continue;
    tune(socket.get());
    place = socket.release();
    --missing;
  }
}

c10::intrusive_ptr<c10d::TCPStore> open_store(const Rendezvous& place, int64_t rank, const GroupLimits& limits) {
  // Its own words on what it tries say less than the error does.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing of ours reads the environment while ranks meet
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*replace=*/0);
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = rank == 0 && !place.is_kept;
  options.waitWorkers = false;
  options.timeout = limits.start;
  try {
    return c10::make_intrusive<c10d::TCPStore>(place.host, options);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw run_failure((options.isServer ? "rank 0 cannot keep the ranks' meeting place at "
                                        : "nobody keeps the ranks' meeting place at ") +
                          place.host + ":" + std::to_string(place.port) + ": " + text.substr(0, text.find('\n')),
                      "see that MASTER_ADDR is rank 0's host, MASTER_PORT free there, and rank 0 started");
  }
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::vector<Link> meet(const Rendezvous& place, int64_t rank, int64_t size, const GroupLimits& limits) {
  const auto end = Clock::now() + limits.start;
  const auto store = open_store(place, rank, limits);
  const auto key = [&](int64_t each) { return "sparsereel/" + place.run + "/" + std::to_string(each); };
  auto [listener, port] = listen_anywhere(static_cast<int>(2 * size));
  const Listener own = {.host = host_name(),
                        .address = own_address_towards(place.host, place.port),
                        .secret = new_secret(),
                        .port = port};
  const std::string line = own.text();
  store->set(key(rank), std::vector<uint8_t>(line.begin(), line.end()));
  std::vector<Link> links(static_cast<size_t>(size));
  try {
    for (int64_t other = 0; other < rank; ++other) {
      store->setTimeout(std::max(milliseconds(1), std::chrono::ceil<milliseconds>(end - Clock::now())));
      std::vector<uint8_t> text;
      try {
        text = store->get(key(other));
      } catch (const std::exception&) {
        throw missing_rank(other, limits.start);
      }
      Listener there = Listener::of({text.begin(), text.end()});
      // A host whose own name is an address of itself alone, as Debian has it, is the store's.
      const bool is_local = there.address.starts_with("127.") || there.address == "::1";
      if (is_local && there.host != own.host) there.address = place.host;
      Call words{.secret = {}, .rank = static_cast<int32_t>(rank), .is_control = 0};
      std::copy_n(there.secret.begin(), std::min(there.secret.size(), kSecretBytes), words.secret.begin());
      for (const int32_t is_control : {0, 1}) {
        words.is_control = is_control;
        slot(links[static_cast<size_t>(other)], words) = call(there, words).release();
      }
    }
    answer_calls(listener.get(), own.secret, rank, links, limits.start, end);
    // Rank 0 keeps the store for as long as anybody reads in it.
    const std::string count = "sparsereel/" + place.run + "/count", met = "sparsereel/" + place.run + "/met";
    if (!place.is_kept && rank > 0 && store->add(count, 1) == size - 1) store->set(met, {1});
    if (!place.is_kept && rank == 0 && size > 1) store->wait({met}, limits.start);
  } catch (...) {
    close_links(links);
    throw;
  }
  return links;
}

}  // namespace sparsereel::models
