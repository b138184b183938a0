// Searches for the hosting that ends a step earliest, and among equals for the one with the fewest
// terms.
#include "worker/parallel/hosting.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "common/base/check.h"

namespace trainyard::parallel {
namespace {

// The limit of the search among equally good hostings. More steps are needed only if one rank is so
// slow that the others have much room, and there are hundreds of ranks.
constexpr int64_t kSearchMax = int64_t{1} << 22;

double SecondsOf(int replicas, double seconds) {
  return static_cast<double>(replicas) * seconds;
}

// Returns the number of terms for replicas [begin, end), as TermsOf in sum_tree.h would list them.
int TermCount(int replicas, int begin, int end) {
  int terms = 0;
  while (begin < end) {
    // Takes the largest node that begins here and is not longer than what is left. The last nodes
    // of the tree are cut off at the end of all replicas.
    int size = 1;
    while (begin % (2 * size) == 0 && std::min(begin + 2 * size, replicas) <= end &&
           begin + size < replicas) {
      size *= 2;
    }
    begin = std::min(begin + size, replicas);
    ++terms;
  }
  return terms;
}

// Gives each replica beyond the first to the rank that would then be done first. No other order
// makes the last rank done earlier. Among equals, the first rank gets more.
std::vector<int> Greedy(int replicas, absl::Span<const double> seconds) {
  // The time at which the rank would be done with one more replica, and the rank's number.
  using Offer = std::pair<double, size_t>;
  std::priority_queue<Offer, std::vector<Offer>, std::greater<>> offers;
  for (size_t rank = 0; rank < seconds.size(); ++rank) {
    offers.emplace(SecondsOf(2, seconds[rank]), rank);
  }
  std::vector<int> counts(seconds.size(), 1);
  for (int left = replicas - static_cast<int>(seconds.size()); left > 0; --left) {
    const size_t rank = offers.top().second;
    offers.pop();
    ++counts[rank];
    offers.emplace(SecondsOf(counts[rank] + 1, seconds[rank]), rank);
  }
  return counts;
}

// Returns the number of replicas that each rank can compute within `limit` seconds, at most `most`.
std::vector<int> Room(absl::Span<const double> seconds, double limit, int most) {
  std::vector<int> room;
  for (const double each : seconds) {
    int count = static_cast<int>(std::min<double>(most, limit / each));
    // The quotient is rounded, but products are what is compared.
    while (count > 1 && SecondsOf(count, each) > limit) --count;
    while (count < most && SecondsOf(count + 1, each) <= limit) ++count;
    room.push_back(std::max(1, count));
  }
  return room;
}

// Finds counts in [1, room] that add up to `replicas` and have the fewest terms, and among them
// those with more replicas on the first ranks. The result is empty if the search would take too
// long. It is a shortest path over (rank, first replica), from the last rank to the first.
std::vector<int> FewestTerms(int replicas, const std::vector<int>& room) {
  constexpr int kNever = std::numeric_limits<int>::max() / 2;
  const int ranks = static_cast<int>(room.size());
  // The range in which a rank may begin: after the fewest and the most replicas that the ranks
  // before it take, and so that those after it can take the rest.
  std::vector<int> low(room.size() + 1, 0), high(room.size() + 1, 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto i = static_cast<size_t>(rank);
    high[i + 1] = std::min(replicas - (ranks - rank - 1), high[i] + room[i]);
  }
  low.back() = high.back() = replicas;
  int64_t steps = 0;
  for (int rank = ranks - 1; rank >= 0; --rank) {
    const auto i = static_cast<size_t>(rank);
    low[i] = std::max(rank, low[i + 1] - room[i]);
    steps += int64_t{high[i] - low[i] + 1} * std::min(room[i], high[i + 1] - low[i + 1] + 1);
  }
  if (steps > kSearchMax) return {};

  struct Choice {
    int terms = kNever;
    int count = 0;
  };
  std::vector<std::vector<Choice>> best(room.size() + 1);
  best.back() = {{.terms = 0}};
  for (int rank = ranks - 1; rank >= 0; --rank) {
    const auto i = static_cast<size_t>(rank);
    for (int begin = low[i]; begin <= high[i]; ++begin) {
      Choice choice;
      const int last = std::min(begin + room[i], high[i + 1]);
      for (int end = last; end >= std::max(begin + 1, low[i + 1]); --end) {
        const int rest = best[i + 1][static_cast<size_t>(end - low[i + 1])].terms;
        const int terms = rest + TermCount(replicas, begin, end);
        if (terms < choice.terms) choice = {.terms = terms, .count = end - begin};
      }
      best[i].push_back(choice);
    }
  }
  std::vector<int> counts;
  int begin = 0;
  for (size_t i = 0; i < room.size(); ++i) {
    counts.push_back(best[i][static_cast<size_t>(begin - low[i])].count);
    begin += counts.back();
  }
  return counts;
}

}  // namespace

absl::StatusOr<Hosting> EvenHosting(int replicas, int world_size) {
  Hosting hosting;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto range = HostedReplicas(replicas, rank, world_size);
    if (!range.ok()) return range.status();
    hosting.push_back(*range);
  }
  return hosting;
}

Hosting SolveHosting(int replicas, absl::Span<const double> seconds) {
  TY_CHECK(!seconds.empty() && replicas >= static_cast<int>(seconds.size()));
  for (const double each : seconds) TY_CHECK(each > 0);
  std::vector<int> counts = Greedy(replicas, seconds);
  double limit = 0;
  for (size_t rank = 0; rank < seconds.size(); ++rank) {
    limit = std::max(limit, SecondsOf(counts[rank], seconds[rank]));
  }
  std::vector<int> fewest = FewestTerms(replicas, Room(seconds, limit, replicas));
  if (!fewest.empty()) counts = std::move(fewest);
  Hosting hosting;
  int begin = 0;
  for (const int count : counts) {
    hosting.push_back({begin, begin + count});
    begin += count;
  }
  return hosting;
}

double StepSeconds(const Hosting& hosting, absl::Span<const double> seconds) {
  TY_CHECK(hosting.size() == seconds.size());
  double longest = 0;
  for (size_t rank = 0; rank < hosting.size(); ++rank) {
    longest = std::max(longest, SecondsOf(hosting[rank].end - hosting[rank].begin, seconds[rank]));
  }
  return longest;
}

}  // namespace trainyard::parallel
