// Simulates the network between the server and its callers. A call may be lost on the way there or
// back, come late, or come twice; a link may be cut in either direction.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/sim/options.h"
#include "tests/sim/world.h"

namespace trainyard::sim {

inline constexpr int kUsersLink = -1;  // hosts have the numbers from 0

// One call under way, as its caller sees it: it ends once, by an answer or without.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  bool ended() const { return ended_; }
  // The caller no longer wants the answer.
  void Cancel() { ended_ = true; }

 protected:
  friend class Transport;
  virtual void Fail(absl::Status status) = 0;

  bool ended_ = false;
};

class Transport {
 public:
  template <typename T>
  using Answer = std::function<void(absl::StatusOr<T>)>;
  // The server's part of a call. It answers through the function, once, now or later.
  template <typename T>
  using Serve = std::function<void(Answer<T>)>;

  Transport(World& world, const Options& options) : world_(world), options_(options) {}

  // Makes a call. `done` is called at most once: with the answer, with UNAVAILABLE if the
  // connection breaks, or with DEADLINE_EXCEEDED after `timeout`.
  template <typename T>
  std::shared_ptr<PendingCall> Call(int link, Time timeout, Serve<T> serve, Answer<T> done) {
    auto call = std::make_shared<CallOf<T>>(std::move(done));
    calls_.push_back(call);
    world_.After(timeout, [call] { call->Fail(absl::DeadlineExceededError("no answer")); });
    Deliver(link, /*to_server=*/true, [this, link, serve = std::move(serve), call] {
      if (server_is_up_) {
        serve([this, link, call](absl::StatusOr<T> value) {
          // A message that comes twice is one value: only its first arrival takes it.
          auto sent = std::make_shared<absl::StatusOr<T>>(std::move(value));
          Deliver(link, /*to_server=*/false, [call, sent] { call->End(std::move(*sent)); });
        });
      } else {
        Deliver(link, /*to_server=*/false,
                [call] { call->Fail(absl::UnavailableError("nobody listens")); });
      }
    });
    return call;
  }

  // The server's process has begun or ended; at its end all connections break.
  void SetServerUp(bool is_up);

  struct Link {
    bool cut_to_server = false;
    bool cut_from_server = false;
    // True while half of the connection is dead and neither end notices, as happens behind some
    // firewalls, possibly for long. A deaf host hears nothing of the server, and a mute host is not
    // heard by it.
    bool is_deaf = false;
    bool is_mute = false;
    Time last_loss = 0;  // when a message to the server was last lost
  };
  Link& link(int number) { return links_[number]; }
  void set_calm() { calm_ = true; }

 private:
  template <typename T>
  class CallOf : public PendingCall {
   public:
    explicit CallOf(Answer<T> done) : done_(std::move(done)) {}

    // Takes the answer only if the call has not ended.
    void End(absl::StatusOr<T>&& answer) {
      if (ended_) return;
      ended_ = true;
      const Answer<T> done = std::exchange(done_, nullptr);
      done(std::move(answer));
    }
    void Fail(absl::Status status) override { End(std::move(status)); }

   private:
    Answer<T> done_;
  };

  bool IsCut(int link, bool to_server);
  void Lose(int link, bool to_server);
  void Deliver(int link, bool to_server, std::function<void()> arrive);

  World& world_;
  const Options& options_;
  bool calm_ = false;  // nothing is lost or doubled any more
  bool server_is_up_ = false;
  std::map<int, Link> links_;
  std::vector<std::weak_ptr<PendingCall>> calls_;
};

}  // namespace trainyard::sim
