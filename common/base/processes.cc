// Reads /proc. A process may end at any moment while it is read. That is no error; the process then
// counts as absent.
#include "common/base/processes.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard {
namespace {

constexpr int64_t kMaxStatBytes = 4096;
constexpr int64_t kMaxEnvironBytes = 4 << 20;

// Positions of fields behind the name, counted from the state (field 3 of proc(5)).
constexpr size_t kStateField = 0;
constexpr size_t kParentField = 1;
constexpr size_t kGroupField = 2;
constexpr size_t kStartField = 19;

}  // namespace

absl::StatusOr<ProcessInfo> ParseProcessStat(absl::string_view text) {
  const size_t open = text.find(" (");
  const size_t close = text.rfind(") ");
  ProcessInfo info;
  if (open != absl::string_view::npos && close != absl::string_view::npos && open < close &&
      absl::SimpleAtoi(text.substr(0, open), &info.pid)) {
    const std::vector<absl::string_view> fields =
        absl::StrSplit(text.substr(close + 2), ' ', absl::SkipEmpty());
    if (fields.size() > kStartField && fields[kStateField].size() == 1 &&
        absl::SimpleAtoi(fields[kParentField], &info.parent) &&
        absl::SimpleAtoi(fields[kGroupField], &info.group) &&
        absl::SimpleAtoi(fields[kStartField], &info.start_ticks)) {
      info.state = fields[kStateField].front();
      return info;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text.substr(0, 200), "' is not the content of /proc/<pid>/stat"));
}

absl::StatusOr<ProcessInfo> ReadProcess(int64_t pid) {
  const auto text = ReadFile(absl::StrCat("/proc/", pid, "/stat"), kMaxStatBytes);
  // Reading a process that ends in the meantime gives ESRCH.
  if (!text.ok()) return absl::NotFoundError(absl::StrCat("there is no process ", pid));
  return ParseProcessStat(*text);
}

std::vector<ProcessInfo> ListProcesses() {
  std::vector<ProcessInfo> processes;
  const auto names = ListDirectory("/proc");
  if (!names.ok()) return processes;
  for (const std::string& name : *names) {
    int64_t pid = 0;
    if (!absl::SimpleAtoi(name, &pid)) continue;
    const auto info = ReadProcess(pid);
    if (info.ok()) processes.push_back(*info);
  }
  std::sort(processes.begin(), processes.end(),
            [](const ProcessInfo& a, const ProcessInfo& b) { return a.pid < b.pid; });
  return processes;
}

std::vector<ProcessInfo> DescendantsOf(int64_t root, const std::vector<ProcessInfo>& processes) {
  std::multimap<int64_t, const ProcessInfo*> children;
  for (const ProcessInfo& process : processes) children.emplace(process.parent, &process);
  std::vector<ProcessInfo> found;
  std::set<int64_t> seen = {root};
  std::vector<int64_t> open = {root};
  while (!open.empty()) {
    const int64_t parent = open.back();
    open.pop_back();
    for (auto [it, end] = children.equal_range(parent); it != end; ++it) {
      if (!seen.insert(it->second->pid).second) continue;
      open.push_back(it->second->pid);
      if (it->second->state != 'Z' && it->second->state != 'X') found.push_back(*it->second);
    }
  }
  return found;
}

bool IsProcessOf(int64_t pid, uint32_t uid) {
  const auto text = ReadFile(absl::StrCat("/proc/", pid, "/status"), kMaxEnvironBytes);
  if (!text.ok()) return false;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (!absl::ConsumePrefix(&line, "Uid:")) continue;
    const std::vector<absl::string_view> uids = absl::StrSplit(line, '\t', absl::SkipEmpty());
    const std::string wanted = absl::StrCat(uid);
    return !uids.empty() && std::all_of(uids.begin(), uids.end(),
                                        [&wanted](absl::string_view it) { return it == wanted; });
  }
  return false;
}

std::string ProcessVariable(int64_t pid, absl::string_view name) {
  const auto environ = ReadFile(absl::StrCat("/proc/", pid, "/environ"), kMaxEnvironBytes);
  if (!environ.ok()) return "";
  for (absl::string_view entry : absl::StrSplit(*environ, '\0')) {
    if (absl::ConsumePrefix(&entry, name) && absl::ConsumePrefix(&entry, "=")) {
      return std::string(entry);
    }
  }
  return "";
}

std::string BootId() {
  const auto text = ReadFile("/proc/sys/kernel/random/boot_id", 64);
  return text.ok() ? std::string(absl::StripSuffix(*text, "\n")) : "";
}

}  // namespace trainyard
