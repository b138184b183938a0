// Keeps a list of the calls that are under way, so that an interrupt can cancel all of them.
#include "client/link/interrupt.h"

#include <utility>

namespace trainyard::link {

Interrupt::Scope::Scope(Interrupt& interrupt, grpc::ClientContext& context)
    : Scope(interrupt, [&context] { context.TryCancel(); }) {}

Interrupt::Scope::Scope(Interrupt& interrupt, std::function<void()> cancel)
    : interrupt_(interrupt), cancel_(std::move(cancel)) {
  const std::lock_guard lock(interrupt_.mutex_);
  interrupt_.scopes_.insert(this);
  if (interrupt_.triggered_) cancel_();
}

Interrupt::Scope::~Scope() {
  const std::lock_guard lock(interrupt_.mutex_);
  interrupt_.scopes_.erase(this);
}

void Interrupt::Trigger() {
  const std::lock_guard lock(mutex_);
  triggered_ = true;
  for (const Scope* scope : scopes_) scope->cancel_();
  changed_.notify_all();
}

bool Interrupt::triggered() const {
  const std::lock_guard lock(mutex_);
  return triggered_;
}

void Interrupt::Rearm() {
  const std::lock_guard lock(mutex_);
  triggered_ = false;
}

void Interrupt::AllowExit(bool allowed) {
  const std::lock_guard lock(mutex_);
  may_exit_ = allowed;
}

bool Interrupt::may_exit() const {
  const std::lock_guard lock(mutex_);
  return may_exit_;
}

bool Interrupt::WaitFor(absl::Duration duration) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, absl::ToChronoMilliseconds(duration),
                           [this] { return triggered_; });
}

}  // namespace trainyard::link
