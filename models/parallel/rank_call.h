// How a rank calls another one over TCP, and how both prove that they belong to one job before either believes the
// other. No tensors.
//
// The caller sends a greeting with a nonce. The listener answers with a nonce of its own, and an HMAC of both under the
// job's secret. The caller checks it and sends its claim: which rank it is, with an HMAC of the nonces and the claim.
// The listener checks that and sends a verdict. What follows is neither encrypted nor signed.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/sha256.h"
#include "models/parallel/tcp.h"

namespace sparsereel::models {

/// The secret that only the ranks of a job know, and the run that they belong to.
struct JobKey {
  std::string secret;
  std::string run;  // another run of the job has another name
};

/// A text of a bounded size as bytes: zeros end it.
template <size_t kBytes>
struct ShortText {
  std::array<char, kBytes> bytes{};

  static ShortText of(std::string_view text) {
    ShortText own;
    text.copy(own.bytes.data(), kBytes - 1);
    return own;
  }
  /// Whatever the bytes are.
  std::string text() const {
    const std::string_view all(bytes.data(), kBytes);
    return std::string(all.substr(0, all.find('\0')));
  }
};

/// A caller introduces itself with this. Sent as its bytes.
struct RankClaim {
  int32_t rank = 0, size = 0;
  int32_t is_control = 0;  // whether the connection is for bad news; else it is for data
  uint32_t port = 0;       // where the caller itself listens
  ShortText<64> host;      // its name
  ShortText<64> address;   // in numbers
};

/// Why a call came to nothing.
struct CallProblem {
  std::string text;
  bool is_connected = false;  // something listened there
  bool is_final = false;      // a rank of this job has refused it; else another attempt may succeed
};

/// Calls whoever listens at the address. Returns a socket of -1 where that fails; `problem` then tells why. It waits a
/// few seconds at most for what stays silent.
Socket call_rank(const TcpAddress& address, const RankClaim& claim, const JobKey& key, Patience& patience,
                 CallProblem& problem);

/// A caller that has proved that it belongs to the job. It waits for answer_caller().
struct Caller {
  RankClaim claim;
  Socket socket;
};

/// Tells the caller that it is welcome, or why it is not. False: it is gone.
bool answer_caller(const Caller& caller, const std::string& refusal);

/// Serves all who call side by side: who says nothing, or too slowly, holds up nobody.
class Reception {
 public:
  Reception(std::vector<Socket> listeners, JobKey key) : listeners_(std::move(listeners)), key_(std::move(key)) {}

  /// Waits for `wait` at most. Returns those who have proved themselves meanwhile.
  std::vector<Caller> serve(std::chrono::milliseconds wait);
  /// How many callers have left without a proof that they know the secret.
  int64_t strangers() const { return strangers_; }

 private:
  struct Guest {
    Socket socket;
    std::chrono::steady_clock::time_point leaves;
    std::string heard;
    std::string nonces;  // the caller's and ours; empty until it has greeted
    RankClaim claim;
  };
  enum class Stage { waits, proved, gone };

  bool let_in(int listener);
  Stage hear(Guest& guest);

  std::vector<Socket> listeners_;
  JobKey key_;
  std::list<Guest> guests_;  // the oldest first
  int64_t strangers_ = 0;
};

}  // namespace sparsereel::models
