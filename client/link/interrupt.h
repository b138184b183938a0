// Lets Ctrl-C end calls and waits.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>

#include "absl/time/time.h"
#include "grpcpp/client_context.h"

namespace trainyard::link {

// An interrupt comes by Ctrl-C, and once only unless Rearm is called. The class is thread-safe and
// must outlive its scopes.
class Interrupt {
 public:
  // Cancels the call when the interrupt comes, or at once if it has come already.
  class Scope {
   public:
    Scope(Interrupt& interrupt, grpc::ClientContext& context);
    // Calls `cancel` instead, on the thread that triggers the interrupt. It must not wait.
    Scope(Interrupt& interrupt, std::function<void()> cancel);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class Interrupt;

    Interrupt& interrupt_;
    const std::function<void()> cancel_;
  };

  void Trigger();
  bool triggered() const;
  // Forgets the interrupt, so that the user's wish to go on after all can be followed.
  void Rearm();
  // While the user is asked a question, there is no call to cancel and nothing to clean up, so the
  // process may just exit.
  void AllowExit(bool allowed);
  bool may_exit() const;
  // Waits for `duration`, or until the interrupt comes. Returns true if it came.
  bool WaitFor(absl::Duration duration);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool triggered_ = false;
  bool may_exit_ = false;
  std::set<const Scope*> scopes_;
};

}  // namespace trainyard::link
