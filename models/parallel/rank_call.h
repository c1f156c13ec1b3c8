// A call from one rank to another over TCP. Both ranks prove that they belong to the same job before either trusts the
// other. No tensors.
//
// The caller sends a greeting with a nonce. The listener answers with its own nonce and an HMAC of both nonces under
// the job's secret. The caller checks the answer and sends its claim: which rank it is, with an HMAC of the nonces and
// the claim. The listener checks the claim and sends a verdict. Later data is neither encrypted nor signed.
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
  std::string run;  // each run of a job has its own name
};

/// A text of bounded size as bytes, ended by zeros.
template <size_t kBytes>
struct ShortText {
  std::array<char, kBytes> bytes{};

  static ShortText of(std::string_view text) {
    ShortText own;
    text.copy(own.bytes.data(), kBytes - 1);
    return own;
  }
  std::string text() const {
    const std::string_view all(bytes.data(), kBytes);
    return std::string(all.substr(0, all.find('\0')));
  }
};

/// A caller's introduction. It is sent as its bytes.
struct RankClaim {
  int32_t rank = 0, size = 0;
  int32_t is_control = 0;  // 1 if the connection is for reports of failures, 0 if for data
  uint32_t port = 0;       // the caller's own listening port
  ShortText<64> host;      // host name
  ShortText<64> address;   // numeric address
};

/// Why a call failed.
struct CallProblem {
  std::string text;
  bool is_connected = false;  // something listened at the address
  bool is_final = false;      // a rank of this job has refused; otherwise another attempt may succeed
};

/// Calls the listener at an address. On failure, returns a socket of -1, and `problem` says why. Gives up on a silent
/// listener after a few seconds.
Socket call_rank(const TcpAddress& address, const RankClaim& claim, const JobKey& key, Patience& patience,
                 CallProblem& problem);

/// A caller that has proved that it belongs to the job, and waits for answer_caller().
struct Caller {
  RankClaim claim;
  Socket socket;
};

/// Tells the caller that it is accepted, or why it is refused. Returns false if the caller is gone.
bool answer_caller(const Caller& caller, const std::string& refusal);

/// Serves all callers at the same time, so that a silent or slow caller does not hold up the others.
class Reception {
 public:
  Reception(std::vector<Socket> listeners, JobKey key) : listeners_(std::move(listeners)), key_(std::move(key)) {}

  /// Serves callers for at most `wait`. Returns the callers that have proved themselves meanwhile.
  std::vector<Caller> serve(std::chrono::milliseconds wait);
  /// Returns the number of callers that left without proving that they know the secret.
  int64_t strangers() const { return strangers_; }

 private:
  struct Guest {
    Socket socket;
    std::chrono::steady_clock::time_point leaves;
    std::string heard;
    std::string nonces;  // the caller's and ours; empty until the caller has greeted
    RankClaim claim;
  };
  enum class Stage { waits, proved, gone };

  bool let_in(int listener);
  Stage hear(Guest& guest);

  std::vector<Socket> listeners_;
  JobKey key_;
  std::list<Guest> guests_;  // oldest first
  int64_t strangers_ = 0;
};

}  // namespace sparsereel::models
