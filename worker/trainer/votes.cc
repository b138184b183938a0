#include "worker/trainer/votes.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/status_macros.h"

namespace trainyard::trainer {
namespace {

using Ballot = std::array<float, 4>;

// Up to this many elements copying costs less than a second message: 4 MiB.
constexpr size_t kCopyMaxElements = size_t{1} << 20;

Ballot Pack(const Votes& votes) {
  return {votes.stop ? 1.0F : 0.0F, votes.checkpoint ? 1.0F : 0.0F, votes.evaluate ? 1.0F : 0.0F,
          static_cast<float>(votes.skipped)};
}

Votes Unpack(const Ballot& ballot) {
  return {.stop = ballot[0] > 0,
          .checkpoint = ballot[1] > 0,
          .evaluate = ballot[2] > 0,
          .skipped = static_cast<int64_t>(ballot[3])};
}

}  // namespace

absl::Status StepReduction::AllReduce(absl::Span<float> arena, Votes& votes) {
  if (host_.world_size() == 1) return absl::OkStatus();
  Ballot ballot = Pack(votes);
  if (device_ != nullptr || arena.size() > kCopyMaxElements) {
    TY_RETURN_IF_ERROR((device_ != nullptr ? *device_ : host_).AllReduce(arena));
    TY_RETURN_IF_ERROR(host_.AllReduce(absl::MakeSpan(ballot)));
  } else {
    message_.resize(arena.size() + ballot.size());
    std::copy(arena.begin(), arena.end(), message_.begin());
    std::copy(ballot.begin(), ballot.end(), message_.end() - ballot.size());
    TY_RETURN_IF_ERROR(host_.AllReduce(absl::MakeSpan(message_)));
    std::copy(message_.begin(), message_.end() - ballot.size(), arena.begin());
    std::copy(message_.end() - ballot.size(), message_.end(), ballot.begin());
  }
  votes = Unpack(ballot);
  return absl::OkStatus();
}

}  // namespace trainyard::trainer
