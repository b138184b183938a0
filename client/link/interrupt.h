// Lets Ctrl-C end calls and waits.
#pragma once

#include <condition_variable>
#include <mutex>
#include <set>

#include "absl/time/time.h"
#include "grpcpp/client_context.h"

namespace trainyard::link {

// Thread-safe. Must outlive its scopes.
class Interrupt {
 public:
  // Cancels the call when the interrupt comes, or at once where it came already.
  class Scope {
   public:
    Scope(Interrupt& interrupt, grpc::ClientContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Interrupt& interrupt_;
    grpc::ClientContext& context_;
  };

  void Trigger();
  bool triggered() const;
  // While somebody is asked a question there is nothing to end in an orderly way, and no call to
  // cancel: the process may just exit.
  void AllowExit(bool allowed);
  bool may_exit() const;
  // Waits, and returns true where the interrupt came.
  bool WaitFor(absl::Duration duration);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool triggered_ = false;
  bool may_exit_ = false;
  std::set<grpc::ClientContext*> contexts_;
};

}  // namespace trainyard::link
