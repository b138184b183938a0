// proc(5) describes the files. They are read as text, since no library has them all.
#include "server/metrics/process.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"

namespace trainyard::metrics {
namespace {

// The fields of /proc/PID/stat behind the name of the program, counted from 0 there.
constexpr size_t kUserTicks = 11;
constexpr size_t kSystemTicks = 12;
constexpr size_t kThreads = 17;
constexpr size_t kStartTicks = 19;
constexpr size_t kVirtualBytes = 20;
constexpr size_t kResidentPages = 21;
constexpr size_t kFieldsRead = 22;

using StatValues = std::array<double, kFieldsRead>;

double TicksOfSecond() {
  return static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::optional<StatValues> ReadStat(const std::string& process_folder) {
  const auto stat = ReadFile(JoinPath(process_folder, "stat"));
  // The name of the program may have spaces and parentheses.
  const size_t name_end = stat.ok() ? stat->rfind(") ") : std::string::npos;
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(stat->substr(name_end + 2), ' ');
  if (fields.size() < kFieldsRead) return std::nullopt;
  StatValues values = {};
  // The first field is the state, which is a letter.
  for (size_t i = 1; i < kFieldsRead; ++i) {
    if (!absl::SimpleAtod(fields[i], &values[i])) return std::nullopt;
  }
  return values;
}

std::optional<double> StartOfSystem(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text.ok()) return std::nullopt;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    double seconds = 0;
    if (absl::ConsumePrefix(&line, "btime ") && absl::SimpleAtod(line, &seconds)) return seconds;
  }
  return std::nullopt;
}

int64_t CountFiles(const std::string& folder) {
  int64_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    ++count;
  }
  return count;
}

}  // namespace

std::optional<double> StartOfProcess(const std::string& process_folder,
                                     const std::string& stat_of_system) {
  const auto values = ReadStat(process_folder);
  const auto system = StartOfSystem(stat_of_system);
  if (!values.has_value() || !system.has_value()) return std::nullopt;
  return *system + (*values)[kStartTicks] / TicksOfSecond();
}

Families ProcessFamilies(std::optional<double> start, const std::string& process_folder) {
  Families families;
  const auto read = ReadStat(process_folder);
  if (!read.has_value()) return families;
  const StatValues& values = *read;
  families.push_back(OneCounter("process_cpu_seconds_total",
                                "The time that the process has used of processors.",
                                (values[kUserTicks] + values[kSystemTicks]) / TicksOfSecond()));
  families.push_back(OneGauge("process_resident_memory_bytes",
                              "The memory of the process that is resident.",
                              values[kResidentPages] * static_cast<double>(getpagesize())));
  families.push_back(OneGauge("process_virtual_memory_bytes", "The address space of the process.",
                              values[kVirtualBytes]));
  families.push_back(
      OneGauge("process_threads", "The number of threads of the process.", values[kThreads]));
  if (start.has_value()) {
    families.push_back(OneGauge("process_start_time_seconds",
                                "The time at which the process started, in seconds since 1970.",
                                *start));
  }
  families.push_back(OneGauge("process_open_fds",
                              "The number of file descriptors that the process has open.",
                              static_cast<double>(CountFiles(JoinPath(process_folder, "fd")))));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    families.push_back(OneGauge("process_max_fds",
                                "The number of file descriptors that the process may have open.",
                                static_cast<double>(limit.rlim_cur)));
  }
  return families;
}

Families DiskFamilies(const std::string& state_dir) {
  Families families;
  std::map<std::string, int64_t> sizes;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(state_dir, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const size_t suffix = name.find(".db");
    if (suffix == std::string::npos) continue;
    std::error_code gone;
    const auto bytes = entry->file_size(gone);
    if (!gone) sizes[name.substr(0, suffix)] += static_cast<int64_t>(bytes);
  }
  prometheus::MetricFamily stores =
      Gauge("trainyard_store_size_bytes",
            "The size of a database of the server, with its log of changes.");
  for (const auto& [store, bytes] : sizes) {
    AddValue(stores, {{"store", store}}, static_cast<double>(bytes));
  }
  families.push_back(std::move(stores));
  struct statvfs disk {};
  if (statvfs(state_dir.c_str(), &disk) == 0) {
    const auto block = static_cast<double>(disk.f_frsize);
    families.push_back(OneGauge("trainyard_disk_free_bytes",
                                "The space that is free on the disk of the state directory.",
                                static_cast<double>(disk.f_bavail) * block));
    families.push_back(OneGauge("trainyard_disk_size_bytes",
                                "The size of the disk of the state directory.",
                                static_cast<double>(disk.f_blocks) * block));
  }
  return families;
}

Families BackupFamilies(const std::string& state_dir) {
  prometheus::MetricFamily times =
      Gauge("trainyard_backup_last_success_timestamp_seconds",
            "The time at which a backup of this kind was whole last, in seconds since 1970.");
  std::error_code error;
  for (std::filesystem::directory_iterator entry(JoinPath(state_dir, "backups"), error), end;
       !error && entry != end; entry.increment(error)) {
    struct stat info {};
    if (stat(entry->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    AddValue(times, {{"kind", entry->path().filename().string()}},
             static_cast<double>(info.st_mtim.tv_sec));
  }
  return times.metric.empty() ? Families() : Families{std::move(times)};
}

}  // namespace trainyard::metrics
