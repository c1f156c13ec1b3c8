// Exchanges the handshake's messages, which have fixed sizes. A listener keeps a state for each caller.
#include "models/parallel/rank_call.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>

namespace sparsereel::models {
namespace {

constexpr std::chrono::milliseconds kHandshake{5000};  // limit for each side of a call to send all its messages
constexpr size_t kMostGuests = 256;

constexpr std::string_view kMagic = "sparsereel-rank1";
using Nonce = std::array<char, 16>;

struct Greeting {
  std::array<char, kMagic.size()> magic;
  Nonce nonce;
};
struct Reply {
  Nonce nonce;
  Sha256Digest proof;
};
struct ProvedClaim {
  RankClaim claim;
  Sha256Digest proof;
};
struct Verdict {
  ShortText<256> refusal;  // empty if the caller is accepted
};
static_assert(sizeof(RankClaim) == 4 * sizeof(int32_t) + 128, "a claim is sent and signed as its bytes");

Nonce new_nonce() {
  Nonce nonce{};
  if (getentropy(nonce.data(), nonce.size()) != 0) throw network_failure("the system returned no random numbers");
  return nonce;
}

template <typename Plain>
std::string_view plain_bytes(const Plain& plain) {
  return {reinterpret_cast<const char*>(&plain), sizeof(plain)};
}

std::string joined(const Nonce& caller, const Nonce& listener) {
  return std::string(plain_bytes(caller)) + std::string(plain_bytes(listener));
}

/// The two sides' proofs must differ; otherwise one side's proof could be sent back to it.
Sha256Digest proof_of_listener(const JobKey& key, const std::string& nonces) {
  return hmac_sha256(key.secret, "listener\n" + nonces + key.run);
}
Sha256Digest proof_of_caller(const JobKey& key, const std::string& nonces, const RankClaim& claim) {
  return hmac_sha256(key.secret, "caller\n" + nonces + std::string(plain_bytes(claim)) + key.run);
}

/// Compares two digests. The time that this takes does not reveal where they differ.
bool are_same(const Sha256Digest& one, const Sha256Digest& other) {
  uint8_t differs = 0;
  for (size_t i = 0; i < one.size(); ++i) differs |= one[i] ^ other[i];
  return differs == 0;
}

bool send_at_once(int socket, std::string_view bytes) {
  return send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

Socket call_rank(const TcpAddress& address, const RankClaim& claim, const JobKey& key, Patience& patience,
                 CallProblem& problem) {
  Patience here(kHandshake, &patience);
  Socket socket = connect_within(address, here);
  if (socket.get() < 0) {
    problem = {.text = std::generic_category().message(errno)};
    return Socket();
  }
  const auto give_up = [&](std::string why, bool is_final = false) {
    problem = {.text = std::move(why), .is_connected = true, .is_final = is_final};
    return Socket();
  };
  Greeting greeting{.magic = {}, .nonce = new_nonce()};
  std::ranges::copy(kMagic, greeting.magic.begin());
  Reply reply{};
  if (!send_within(socket.get(), &greeting, sizeof(greeting), here) ||
      !receive_within(socket.get(), &reply, sizeof(reply), here))
    return give_up("the program that listens there does not answer like a rank");
  const std::string nonces = joined(greeting.nonce, reply.nonce);
  if (!are_same(reply.proof, proof_of_listener(key, nonces)))
    return give_up("the program that listens there does not know this job's secret, or belongs to another run");
  const ProvedClaim proved{.claim = claim, .proof = proof_of_caller(key, nonces, claim)};
  Verdict verdict{};
  if (!send_within(socket.get(), &proved, sizeof(proved), here) ||
      !receive_within(socket.get(), &verdict, sizeof(verdict), here))
    return give_up("the rank there ended before it answered");
  if (std::string refusal = verdict.refusal.text(); !refusal.empty()) return give_up(std::move(refusal), true);
  send_without_delay(socket.get());
  return socket;
}

bool answer_caller(const Caller& caller, const std::string& refusal) {
  const Verdict verdict{.refusal = ShortText<256>::of(refusal)};
  send_without_delay(caller.socket.get());
  return send_at_once(caller.socket.get(), plain_bytes(verdict));
}

/// Accepts a waiting caller. Returns false if no caller waits.
bool Reception::let_in(int listener) {
  Socket socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.get() < 0) return false;
  if (guests_.size() >= kMostGuests) guests_.pop_front();
  guests_.push_back({.socket = std::move(socket),
                     .leaves = std::chrono::steady_clock::now() + kHandshake,
                     .heard = {},
                     .nonces = {},
                     .claim = {}});
  return true;
}

/// Reads no byte beyond the handshake's messages, because later bytes are for the code that gets the socket.
Reception::Stage Reception::hear(Guest& guest) {
  const size_t wanted = guest.nonces.empty() ? sizeof(Greeting) : sizeof(ProvedClaim);
  std::array<char, std::max(sizeof(Greeting), sizeof(ProvedClaim))> bytes{};
  const ssize_t count = recv(guest.socket.get(), bytes.data(), wanted - guest.heard.size(), MSG_DONTWAIT);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return Stage::gone;
  guest.heard.append(bytes.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (guest.heard.size() < wanted) return Stage::waits;
  if (guest.nonces.empty()) {
    Greeting greeting{};
    std::memcpy(&greeting, guest.heard.data(), sizeof(greeting));
    if (plain_bytes(greeting.magic) != kMagic) return Stage::gone;
    Reply reply{.nonce = new_nonce(), .proof = {}};
    guest.nonces = joined(greeting.nonce, reply.nonce);
    guest.heard.clear();
    reply.proof = proof_of_listener(key_, guest.nonces);
    return send_at_once(guest.socket.get(), plain_bytes(reply)) ? Stage::waits : Stage::gone;
  }
  ProvedClaim proved{};
  std::memcpy(&proved, guest.heard.data(), sizeof(proved));
  guest.claim = proved.claim;
  return are_same(proved.proof, proof_of_caller(key_, guest.nonces, proved.claim)) ? Stage::proved : Stage::gone;
}

std::vector<Caller> Reception::serve(std::chrono::milliseconds wait) {
  std::vector<pollfd> handles;
  for (const Socket& listener : listeners_) handles.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
  for (const Guest& guest : guests_) handles.push_back({.fd = guest.socket.get(), .events = POLLIN, .revents = 0});
  std::vector<Caller> proved;
  if (poll(handles.data(), handles.size(), static_cast<int>(wait.count())) < 0) return proved;
  auto handle = handles.begin() + static_cast<ptrdiff_t>(listeners_.size());
  const auto now = std::chrono::steady_clock::now();
  for (auto guest = guests_.begin(); guest != guests_.end(); ++handle) {
    const auto next = std::next(guest);
    const Stage stage = handle->revents != 0 ? hear(*guest) : Stage::waits;
    if (stage == Stage::proved) proved.push_back({guest->claim, std::move(guest->socket)});
    if (stage == Stage::gone && !guest->nonces.empty()) ++strangers_;
    if (stage != Stage::waits || now > guest->leaves) guests_.erase(guest);
    guest = next;
  }
  for (size_t i = 0; i < listeners_.size(); ++i)
    for (size_t guest = 0; guest < kMostGuests && handles[i].revents != 0 && let_in(listeners_[i].get()); ++guest) {
    }
  return proved;
}

}  // namespace sparsereel::models
