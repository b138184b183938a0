// Contains what the communicators share: the errors by which a collective fails, and the division
// into blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace trainyard::parallel {

// One call of a collective on one rank. All ranks count alike, so the sequence number finds the
// same call on each.
struct Collective {
  int rank = 0;
  absl::string_view operation;  // "all_reduce"
  int64_t sequence = 0;         // from 1
};

// Returns UNAVAILABLE (PEER_LOST): "rank 1: all_reduce 12: rank 0 was lost: connection closed".
// `peer` is negative if it is unknown.
absl::Status PeerLost(const Collective& collective, int peer, absl::string_view cause);
// Returns DEADLINE_EXCEEDED (COLLECTIVE_TIMEOUT): "rank 1: all_reduce 12: rank 0 did not take part
// within 30s".
absl::Status CollectiveTimedOut(const Collective& collective, int peer, absl::Duration timeout);
inline constexpr char kReasonCollectiveTimeout[] = "COLLECTIVE_TIMEOUT";
// Returns FAILED_PRECONDITION (COLLECTIVE_MISMATCH): the ranks called different collectives.
absl::Status CollectiveMismatch(const Collective& collective, absl::string_view what);

// Returns COLLECTIVE_MISMATCH, too: `sender` brings a part of another size than its receiver
// expects.
absl::Status WrongPart(const Collective& collective, int sender, size_t sent, size_t expected);
// Returns OK, or CollectiveMismatch unless there is one part for every rank, as all_to_all needs.
absl::Status CheckParts(const Collective& collective, int world_size,
                        absl::Span<const absl::Span<const float>> send,
                        absl::Span<const absl::Span<float>> receive);
// Returns OK, or CollectiveMismatch unless the peer of `rank` is another rank of the gang.
absl::Status CheckPeer(const Collective& collective, int rank, int world_size, int peer);

// The facts that the errors above contain, for programs. They are absent in any other status.
// Annotate keeps them.
struct Blame {
  int peer = -1;  // the rank that was lost or did not take part; -1: not known
  std::string operation;
  int64_t sequence = 0;

  friend bool operator==(const Blame&, const Blame&) = default;
};
std::optional<Blame> BlameOf(const absl::Status& status);

// The elements [begin, end) of `size` that rank `index` of `parts` reduces. Parts are as even as
// possible.
struct Block {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
};
Block BlockOf(size_t size, int index, int parts);

// Computes target[i] += source[i].
void AddTo(float* target, const float* source, size_t count);

}  // namespace trainyard::parallel
