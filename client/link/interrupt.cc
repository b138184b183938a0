// Keeps a list of the calls that are under way, so that an interrupt can cancel all of them.
#include "client/link/interrupt.h"

namespace trainyard::link {

Interrupt::Scope::Scope(Interrupt& interrupt, grpc::ClientContext& context)
    : interrupt_(interrupt), context_(context) {
  const std::lock_guard lock(interrupt_.mutex_);
  interrupt_.contexts_.insert(&context_);
  if (interrupt_.triggered_) context_.TryCancel();
}

Interrupt::Scope::~Scope() {
  const std::lock_guard lock(interrupt_.mutex_);
  interrupt_.contexts_.erase(&context_);
}

void Interrupt::Trigger() {
  const std::lock_guard lock(mutex_);
  triggered_ = true;
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
  changed_.notify_all();
}

bool Interrupt::triggered() const {
  const std::lock_guard lock(mutex_);
  return triggered_;
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
