// Starts ranks of a gang as processes of a trainer's program.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/records.h"

namespace trainyard::trainer {

// A run directory and the processes that work in it, for fixtures of tests.
class RankProcesses {
 protected:
  explicit RankProcesses(std::string binary) : binary_(std::move(binary)) {}

  // Adds the ranks, which are all on this host, and writes the assignment.
  void Assign(int world_size, run_dir::Assignment assignment) {
    assignment.world_size = world_size;
    for (int rank = 0; rank < world_size; ++rank) {
      assignment.ranks.push_back({.rank = rank, .local_rank = rank});
    }
    TY_CHECK_OK(run_dir::WriteAssignment(dir_, assignment));
  }

  // Starts a rank. `more` are further arguments. The folder gets out-RANK and err-RANK, with all
  // that it prints.
  std::unique_ptr<testing::Process> StartRank(int rank, const std::vector<std::string>& more = {}) {
    testing::Process::Options options;
    options.args = {binary_, "--run_dir", dir_.root(), "--rank", absl::StrCat(rank)};
    options.args.insert(options.args.end(), more.begin(), more.end());
    options.stdout_path = folder_.File(absl::StrCat("out-", rank));
    options.stderr_path = folder_.File(absl::StrCat("err-", rank));
    auto process = testing::Process::Start(std::move(options));
    TY_CHECK_OK(process.status());
    return *std::move(process);
  }

  bool WaitUntilRunning(int rank) const {
    return testing::WaitUntil([this, rank] {
      const auto progress = run_dir::ReadProgress(dir_, rank);
      return progress.ok() && progress->state == run_dir::Progress::State::kRunning;
    });
  }

  testing::TempDir folder_;
  run_dir::RunDir dir_{folder_.path()};

 private:
  const std::string binary_;
};

}  // namespace trainyard::trainer
