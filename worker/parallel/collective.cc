#include "worker/parallel/collective.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/duration.h"
#include "common/base/errors.h"

namespace trainyard::parallel {
namespace {

std::string Where(const Collective& collective) {
  return absl::StrCat("rank ", collective.rank, ": ", collective.operation, " ",
                      collective.sequence, ": ");
}

std::string Who(int peer) {
  return peer < 0 ? std::string("a peer") : absl::StrCat("rank ", peer);
}

}  // namespace

absl::Status PeerLost(const Collective& collective, int peer, absl::string_view cause) {
  return MakeError(absl::StatusCode::kUnavailable, "PEER_LOST",
                   absl::StrCat(Where(collective), Who(peer), " was lost: ", cause));
}

absl::Status CollectiveTimedOut(const Collective& collective, int peer, absl::Duration timeout) {
  return MakeError(absl::StatusCode::kDeadlineExceeded, "COLLECTIVE_TIMEOUT",
                   absl::StrCat(Where(collective), Who(peer), " did not take part within ",
                                DurationText(timeout)));
}

absl::Status CollectiveMismatch(const Collective& collective, absl::string_view what) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "COLLECTIVE_MISMATCH",
                   absl::StrCat(Where(collective), what));
}

Block BlockOf(size_t size, int index, int parts) {
  const auto i = static_cast<size_t>(index);
  const auto n = static_cast<size_t>(parts);
  const auto begin = [&](size_t part) { return part * (size / n) + std::min(part, size % n); };
  return {begin(i), begin(i + 1)};
}

void AddTo(float* target, const float* source, size_t count) {
  for (size_t i = 0; i < count; ++i) target[i] += source[i];
}

absl::Status WrongPart(const Collective& collective, int sender, size_t sent, size_t expected) {
  return CollectiveMismatch(
      collective, absl::StrCat("rank ", sender, " sends ", sent, " elements where ", expected,
                               " are expected"));
}

absl::Status CheckParts(const Collective& collective, int world_size,
                        absl::Span<const absl::Span<const float>> send,
                        absl::Span<const absl::Span<float>> receive) {
  const auto ranks = static_cast<size_t>(world_size);
  if (send.size() == ranks && receive.size() == ranks) return absl::OkStatus();
  return CollectiveMismatch(collective,
                            absl::StrCat(send.size(), " parts to send and ", receive.size(),
                                         " to receive; expected ", ranks, " of each"));
}

absl::Status CheckPeer(const Collective& collective, int rank, int world_size, int peer) {
  if (peer >= 0 && peer < world_size && peer != rank) return absl::OkStatus();
  return CollectiveMismatch(collective, absl::StrCat("there is no other rank ", peer));
}

}  // namespace trainyard::parallel
