// Reads /proc and the sizes of files.
#include "worker/program/idle_signs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "worker/run_dir/records.h"
#include "worker/run_dir/visit.h"

namespace trainyard::program {
namespace {

// The fields utime, stime, cutime and cstime of /proc/<pid>/stat, counted from the state.
constexpr size_t kFirstTime = 11;
constexpr size_t kLastTime = 14;

int64_t TicksOf(int64_t pid) {
  const auto text = ReadFile(absl::StrCat("/proc/", pid, "/stat"), 4096);
  if (!text.ok()) return 0;
  const size_t close = text->rfind(") ");
  if (close == std::string::npos) return 0;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(*text).substr(close + 2), ' ');
  int64_t ticks = 0;
  for (size_t i = kFirstTime; i <= kLastTime && i < fields.size(); ++i) {
    int64_t field = 0;
    if (absl::SimpleAtoi(fields[i], &field)) ticks += field;
  }
  return ticks;
}

}  // namespace

Signs ReadSigns(const run_dir::RunDir& dir, const run_dir::Assignment& assignment) {
  Signs signs;
  // The ranks themselves look ten times a second. Other children of the supervisor are processes of
  // programs of which the parents have ended.
  std::set<int64_t> ranks = {getpid()};
  if (const auto record = run_dir::ReadSupervisorRecord(dir); record.ok()) {
    for (const auto& rank : record->ranks) ranks.insert(rank.pid);
  }
  int64_t ticks = 0;
  for (const ProcessInfo& process : DescendantsOf(getppid(), ListProcesses())) {
    if (ranks.count(process.pid) == 0) ticks += TicksOf(process.pid);
  }
  const auto per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  signs.processor_time = absl::Seconds(static_cast<double>(ticks) / per_second);
  for (const run_dir::RankAssignment& rank : assignment.ranks) {
    const std::string metrics =
        JoinPath(JoinPath(dir.RankDir(rank.rank), "program"), "metrics.jsonl");
    for (const std::string& path : {dir.LogPath(rank.rank), metrics}) {
      signs.written_bytes += FileSize(path).value_or(0);
    }
  }
  struct stat visit {};
  if (stat(run_dir::VisitPath(dir).c_str(), &visit) == 0) {
    signs.visit_us = visit.st_mtim.tv_sec * 1'000'000 + visit.st_mtim.tv_nsec / 1000;
  }
  return signs;
}

}  // namespace trainyard::program
