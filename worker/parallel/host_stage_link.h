// Implements the link between two stages over host memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/parallel/communicator.h"
#include "worker/parallel/send_line.h"
#include "worker/parallel/stage_link.h"

namespace trainyard::parallel {

// The lines between two neighbours, one for each direction. In both the neighbour is rank `peer`.
struct HostLines {
  std::unique_ptr<Communicator> receives;
  std::unique_ptr<Communicator> sends;
  int peer = 0;
};

// Sends on a thread of its own. The stage computes before its calls return, so that Release has
// nothing to do.
class HostStageLink final : public StageLink {
 public:
  HostStageLink(HostLines lines, int slots);

  absl::Status Send(int slot, absl::Span<const float> values) override;
  // Does so when `written`, which the sending thread calls, has returned OK. It returns when the
  // values are there.
  void SendWhen(std::function<absl::Status()> written, int slot, absl::Span<const float> values);
  absl::Status AwaitSent(int slot) override;
  absl::Status Receive(int slot, absl::Span<float> values) override;
  absl::Status Release(int) override { return absl::OkStatus(); }
  absl::Status SendNumbers(absl::Span<const float> numbers) override;
  absl::Status ReceiveNumbers(absl::Span<float> numbers) override;
  void set_timeout(absl::Duration timeout) override;

 private:
  HostLines lines_;
  std::vector<int64_t> sent_;  // by slot: the number of its last send
  SendLine line_;              // borrows lines_.sends
};

}  // namespace trainyard::parallel
