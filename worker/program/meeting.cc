// Rank 0 says where it is. If the ranks are on several hosts, each says on which one, and the hosts
// are numbered in the order of their first ranks.
#include "worker/program/meeting.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/interfaces.h"
#include "common/base/status_macros.h"
#include "worker/run_dir/rendezvous.h"

namespace trainyard::program {
namespace {

constexpr char kMasterKey[] = "program.master";
constexpr absl::Duration kPollInterval = absl::Milliseconds(20);

std::string HostKey(int rank) {
  return absl::StrCat("program.host.", rank);
}

// Reads keys that other ranks write.
class Waiter {
 public:
  Waiter(const run_dir::RunDir& dir, absl::Duration timeout, Clock& clock,
         const std::function<bool()>& is_stopped)
      : dir_(dir), end_(clock.Uptime() + timeout), clock_(clock), is_stopped_(is_stopped) {}

  absl::StatusOr<std::string> Wait(const std::string& key, int rank) {
    while (true) {
      auto value = run_dir::GetRendezvousKey(dir_, key);
      if (!absl::IsNotFound(value.status())) return value;
      if (is_stopped_()) return absl::CancelledError("a stop was asked for");
      if (clock_.Uptime() >= end_) {
        return absl::DeadlineExceededError(absl::StrCat("rank ", rank, " has not come"));
      }
      clock_.SleepFor(kPollInterval);
    }
  }

 private:
  const run_dir::RunDir& dir_;
  const absl::Duration end_;
  Clock& clock_;
  const std::function<bool()>& is_stopped_;
};

// Returns the hosts of all ranks, in the order of their first ranks.
absl::StatusOr<std::vector<std::string>> HostsOf(const run_dir::RunDir& dir,
                                                 const run_dir::Assignment& assignment, int rank,
                                                 Waiter& waiter) {
  const bool is_one_host = static_cast<int>(assignment.ranks.size()) == assignment.world_size;
  if (is_one_host) return std::vector<std::string>{assignment.worker};
  TY_RETURN_IF_ERROR(run_dir::SetRendezvousKey(dir, HostKey(rank), assignment.worker));
  std::vector<std::string> hosts;
  for (int other = 0; other < assignment.world_size; ++other) {
    TY_ASSIGN_OR_RETURN(std::string host, waiter.Wait(HostKey(other), other));
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) {
      hosts.push_back(std::move(host));
    }
  }
  return hosts;
}

}  // namespace

absl::StatusOr<Meeting> Meet(const run_dir::RunDir& dir, const run_dir::Assignment& assignment,
                             int rank, bool is_per_host, absl::Duration timeout, Clock& clock,
                             const std::function<bool()>& is_stopped) {
  Meeting meeting;
  Place& place = meeting.place;
  TY_ASSIGN_OR_RETURN(const InterfaceAddress here, FindInterface(assignment.interface));
  Waiter waiter(dir, timeout, clock, is_stopped);
  if (rank == 0) {
    TY_ASSIGN_OR_RETURN(meeting.claim,
                        PortClaim::Take(static_cast<uint64_t>(assignment.fencing_token) * 7919));
    place.master_address = here.address;
    place.master_port = meeting.claim->port();
    if (assignment.world_size > 1) {
      TY_RETURN_IF_ERROR(run_dir::SetRendezvousKey(
          dir, kMasterKey, absl::StrCat(place.master_address, " ", place.master_port)));
    }
  } else {
    TY_ASSIGN_OR_RETURN(const std::string master, waiter.Wait(kMasterKey, 0));
    const std::vector<std::string> words = absl::StrSplit(master, ' ');
    if (words.size() != 2 || !absl::SimpleAtoi(words[1], &place.master_port)) {
      return absl::DataLossError(absl::StrCat("rank 0 says that it is at '", master, "'"));
    }
    place.master_address = words[0];
  }
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, HostsOf(dir, assignment, rank, waiter));
  place.nodes = static_cast<int>(hosts.size());
  if (place.nodes > 1) place.interface = here.interface;
  place.node_rank =
      static_cast<int>(std::find(hosts.begin(), hosts.end(), assignment.worker) - hosts.begin());
  place.rank = is_per_host ? place.node_rank : rank;
  place.world_size = is_per_host ? place.nodes : assignment.world_size;
  place.local_world_size = is_per_host ? 1 : static_cast<int>(assignment.ranks.size());
  const run_dir::RankAssignment* mine = assignment.FindRank(rank);
  place.local_rank = is_per_host || mine == nullptr ? 0 : mine->local_rank;
  return meeting;
}

}  // namespace trainyard::program
