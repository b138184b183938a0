// Joins a thread that sends and a line that receives.
#include "worker/parallel/host_stage_link.h"

#include <utility>

#include "common/base/status_macros.h"

namespace trainyard::parallel {

HostStageLink::HostStageLink(HostLines lines, int slots)
    : lines_(std::move(lines)),
      sent_(static_cast<size_t>(slots), 0),
      line_(*lines_.sends, lines_.peer) {}

absl::Status HostStageLink::Send(int slot, absl::Span<const float> values) {
  SendWhen(/*written=*/nullptr, slot, values);
  return absl::OkStatus();
}

void HostStageLink::SendWhen(std::function<absl::Status()> written, int slot,
                             absl::Span<const float> values) {
  sent_[static_cast<size_t>(slot)] = line_.Send(values, std::move(written));
}

absl::Status HostStageLink::AwaitSent(int slot) {
  return line_.WaitFor(sent_[static_cast<size_t>(slot)]);
}

absl::Status HostStageLink::Receive(int, absl::Span<float> values) {
  return lines_.receives->Receive(values, lines_.peer);
}

// The line's thread is idle once everything has left, so the communicator is free.
absl::Status HostStageLink::SendNumbers(absl::Span<const float> numbers) {
  TY_RETURN_IF_ERROR(line_.WaitForAll());
  return lines_.sends->Send(numbers, lines_.peer);
}

absl::Status HostStageLink::ReceiveNumbers(absl::Span<float> numbers) {
  return lines_.receives->Receive(numbers, lines_.peer);
}

void HostStageLink::set_timeout(absl::Duration timeout) {
  lines_.receives->set_timeout(timeout);
  lines_.sends->set_timeout(timeout);
}

}  // namespace trainyard::parallel
