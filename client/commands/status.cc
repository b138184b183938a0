// status says in a few lines whether there is a server, and what it does.
#include <map>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/verbs.h"
#include "client/output/text.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

// Returns "2 workers: 1 active, 1 unreachable".
std::string WorkersLine(const Context& context, const v1::ListWorkersResponse& response) {
  std::map<std::string, int> states;
  for (const v1::Worker& worker : response.workers()) {
    const bool is_silent = output::IsSilent(worker, context.clock.Now());
    ++states[is_silent ? "silent" : absl::AsciiStrToLower(output::StateText(worker.state()))];
  }
  return absl::StrCat(Counted(static_cast<size_t>(response.workers_size()), "worker"),
                      states.empty() ? "" : ": ",
                      absl::StrJoin(states, ", ", [](std::string* out, const auto& state) {
                        absl::StrAppend(out, state.second, " ", state.first);
                      }));
}

std::string DevicesLine(const v1::ListWorkersResponse& response) {
  size_t all = 0;
  size_t busy = 0;
  for (const v1::Worker& worker : response.workers()) {
    if (worker.state() != v1::WORKER_STATE_ACTIVE) continue;
    for (const v1::Device& device : worker.devices()) {
      ++all;
      busy += device.attempt().empty() ? 0 : 1;
    }
  }
  return absl::StrCat(Counted(all, "device"), " of active workers: ", busy, " busy, ", all - busy,
                      " free");
}

absl::StatusOr<size_t> CountLive(link::ServerLink& link) {
  constexpr int kPageSize = 1000;
  v1::ListJobsRequest request;
  request.set_page_size(kPageSize);
  for (const v1::JobState state :
       {v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING, v1::JOB_STATE_STOPPING}) {
    request.add_states(state);
  }
  request.set_count_more(true);
  TY_ASSIGN_OR_RETURN(const v1::ListJobsResponse response,
                      link.Call(&v1::JobService::Stub::ListJobs, request));
  return static_cast<size_t>(response.jobs_size()) + static_cast<size_t>(response.more_jobs());
}

Result PrintStatus(const Context& context) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::ListWorkersResponse workers,
                      link->Call(&v1::FleetService::Stub::ListWorkers, v1::ListWorkersRequest()));
  if (PrintResources(context, workers.workers())) return link::kOk;
  v1::ListQueueRequest queue;
  queue.set_page_size(1);
  TY_ASSIGN_OR_RETURN(const v1::ListQueueResponse queued,
                      link->Call(&v1::JobService::Stub::ListQueue, queue));
  TY_ASSIGN_OR_RETURN(const size_t live, CountLive(*link));
  context.out << "the server at " << link->address() << " answers\n"
              << WorkersLine(context, workers) << "\n"
              << DevicesLine(workers) << "\n"
              << Counted(live, "job") << " on devices, " << FormatCount(queued.queued_jobs())
              << " in the queue\n";
  return link::kOk;
}

}  // namespace

void AddStatus(VerbTable& verbs) {
  verbs.Add("status", "Say whether the server answers, and what it does", "", PrintStatus);
}

}  // namespace trainyard::commands
