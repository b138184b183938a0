// Judges the second runs of jobs: gathers what is recorded of both runs, compares them, and keeps
// the result, so that it outlives the second run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/yard/yard.h"
#include "server/rpc/services.h"
#include "server/runtime/board.h"
#include "server/runtime/log_store.h"
#include "server/store/metrics_store.h"
#include "server/store/sqlite/remark_store.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

// A job and a second run of it, with what only the yard knows of them.
struct SecondRun {
  std::shared_ptr<const runtime::JobView> first;
  std::shared_ptr<const runtime::JobView> second;
  // The types of the devices of the ranks.
  std::vector<std::string> first_devices;
  std::vector<std::string> second_devices;
};

// Returns the second runs of a job that are on the board, in order of their numbers. Like all
// functions with a yard, it is called on the writer.
std::vector<SecondRun> SecondRunsOf(const Services& services, const core::Yard& yard, JobId job);
// Returns the second runs that have ended, whose results are not kept yet, and of which nobody
// could tell the result any more once this was deleted.
std::vector<SecondRun> SecondRunsLostWith(const Services& services, const core::Yard& yard,
                                          const core::DeleteJob& deletion);

// The places in which runs are recorded, and results are kept. They outlive all executors, unlike
// the rest of the services.
struct RunSources {
  const runtime::Board& board;
  const runtime::LogStore& logs;
  store::MetricsStore& metrics;
  store::RemarkStore* remarks;  // null in some tests

  explicit RunSources(const Services& services)
      : board(services.board),
        logs(services.logs),
        metrics(services.metrics),
        remarks(services.remarks) {}
};

// Returns the result of a second run, which is PENDING before its end. The first result after the
// end is kept. This blocks on the disk.
absl::StatusOr<v1::Verification> JudgeSecondRun(const RunSources& sources, const SecondRun& run);
// Judges them all, and says in the log which it could not.
void KeepResults(const RunSources& sources, const std::vector<SecondRun>& runs);

// Judges a job that has ended, if it was a second run, some time later.
void JudgeLater(Services& services, const core::JobRecord& ended);

}  // namespace trainyard::rpc
