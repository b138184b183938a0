// The errors of collectives, and the arithmetic that communicators share.
#include "worker/parallel/collective.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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

// Returns "<peer> <sequence> <operation>".
constexpr char kBlamePayload[] = "trainyard/collective";

absl::Status WithBlame(absl::Status status, const Collective& collective, int peer) {
  status.SetPayload(kBlamePayload, absl::Cord(absl::StrCat(peer, " ", collective.sequence, " ",
                                                           collective.operation)));
  return status;
}

}  // namespace

absl::Status PeerLost(const Collective& collective, int peer, absl::string_view cause) {
  return WithBlame(MakeError(absl::StatusCode::kUnavailable, "PEER_LOST",
                             absl::StrCat(Where(collective), Who(peer), " was lost: ", cause)),
                   collective, peer);
}

absl::Status CollectiveTimedOut(const Collective& collective, int peer, absl::Duration timeout) {
  return WithBlame(MakeError(absl::StatusCode::kDeadlineExceeded, kReasonCollectiveTimeout,
                             absl::StrCat(Where(collective), Who(peer),
                                          " did not take part within ", DurationText(timeout))),
                   collective, peer);
}

absl::Status CollectiveMismatch(const Collective& collective, absl::string_view what) {
  return WithBlame(MakeError(absl::StatusCode::kFailedPrecondition, "COLLECTIVE_MISMATCH",
                             absl::StrCat(Where(collective), what)),
                   collective, -1);
}

std::optional<Blame> BlameOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kBlamePayload);
  if (!payload.has_value()) return std::nullopt;
  const std::string text(*payload);
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits(' ', 2));
  Blame blame;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &blame.peer) ||
      !absl::SimpleAtoi(parts[1], &blame.sequence)) {
    return std::nullopt;
  }
  blame.operation = std::string(parts[2]);
  return blame;
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
