// Measures disks, and looks at the folder of data sets.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/doctor/gather.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::doctor {
namespace {

using nlohmann::json;

constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr int64_t kWrittenMax = int64_t{256} << 20;
// A commit of a database is about this large. The median of these is taken.
constexpr size_t kCommitBytes = 4096;
constexpr size_t kCommits = 15;
// Folders of data sets may have millions of files; those right in them tell enough.
constexpr size_t kEntriesMax = 1000;
constexpr size_t kMessageBytesMax = 300;

// Opens a file that is gone when it is closed, however that happens.
absl::StatusOr<UniqueFd> OpenNamelessFile(const std::string& folder) {
  const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return UniqueFd(fd);
  if (errno != EOPNOTSUPP && errno != EISDIR) {
    return ErrnoStatus(errno, "cannot write into", folder);
  }
  // This file system has no files without names.
  std::string path = JoinPath(folder, ".trainyard-doctor-XXXXXX");
  UniqueFd named(mkostemp(path.data(), O_CLOEXEC));
  if (!named.valid()) return ErrnoStatus(errno, "cannot write into", folder);
  unlink(path.c_str());
  return named;
}

// Writes pieces that reach the disk one by one, so that a slow disk is not given more than it can
// take in the time that there is.
absl::StatusOr<double> MeasureSpeed(int fd, int64_t free_bytes, absl::Duration write_for,
                                    const std::string& folder) {
  // Zeros could be compressed.
  std::string piece(kPieceBytes, '\0');
  uint32_t state = 1;
  for (char& byte : piece) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<char>(state >> 24U);
  }
  Clock* clock = Clock::Real();
  const absl::Duration start = clock->Uptime();
  const int64_t most = std::min(kWrittenMax, free_bytes / 8);
  int64_t written = 0;
  do {
    TY_RETURN_IF_ERROR(WriteFully(fd, piece, folder));
    if (fdatasync(fd) != 0) return ErrnoStatus(errno, "cannot sync a file in", folder);
    written += static_cast<int64_t>(kPieceBytes);
  } while (written < most && clock->Uptime() - start < write_for);
  const absl::Duration taken = std::max(clock->Uptime() - start, absl::Microseconds(1));
  return static_cast<double>(written) / absl::ToDoubleSeconds(taken);
}

absl::StatusOr<absl::Duration> MeasureCommit(int fd, absl::Duration write_for,
                                             const std::string& folder) {
  const std::string page(kCommitBytes, 'x');
  Clock* clock = Clock::Real();
  const absl::Duration start = clock->Uptime();
  std::vector<absl::Duration> times;
  do {
    const absl::Duration before = clock->Uptime();
    TY_RETURN_IF_ERROR(WriteFully(fd, page, folder));
    if (fdatasync(fd) != 0) return ErrnoStatus(errno, "cannot sync a file in", folder);
    times.push_back(clock->Uptime() - before);
  } while (times.size() < kCommits && clock->Uptime() - start < write_for);
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

absl::Status Measure(DiskFacts& disk, absl::Duration write_for, const std::string& folder) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenNamelessFile(folder));
  TY_ASSIGN_OR_RETURN(const absl::Duration commit, MeasureCommit(fd.get(), write_for / 4, folder));
  TY_ASSIGN_OR_RETURN(const double speed,
                      MeasureSpeed(fd.get(), disk.free_bytes, write_for * 3 / 4, folder));
  disk.commit = commit;
  disk.bytes_per_second = speed;
  return absl::OkStatus();
}

bool OthersCan(const std::string& path, mode_t bits) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && (info.st_mode & bits) == bits;
}

// Lists what keeps a user without rights from reading the folder.
std::vector<std::string> ClosedPaths(const std::string& folder) {
  std::vector<std::string> closed;
  const std::filesystem::path whole(folder);
  std::filesystem::path above;
  for (const std::filesystem::path& part : whole) {
    above /= part;
    if (!part.empty() && !OthersCan(above, S_IXOTH)) closed.push_back(above);
  }
  if (!OthersCan(folder, S_IROTH) && closed.empty()) closed.push_back(folder);
  std::vector<std::string> names = ListDirectory(folder).value_or(std::vector<std::string>());
  names.resize(std::min(names.size(), kEntriesMax));
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(path, ignored);
    if (!OthersCan(path, is_folder ? S_IROTH | S_IXOTH : S_IROTH)) closed.push_back(path);
  }
  return closed;
}

std::string TextOf(const json& split, const char* field) {
  const auto found = split.find(field);
  return found != split.end() && found->is_string() ? found->get<std::string>() : "";
}

void AskTrainer(DatasetFacts& datasets, const std::string& trainer, const RunProgram& run) {
  const auto result = run({trainer, "--data", "ls", "--dataset_dir", datasets.folder});
  if (!result.ok()) {
    datasets.error = std::string(result.status().message());
    return;
  }
  const json report = json::parse(result->out, nullptr, /*allow_exceptions=*/false);
  if (result->exit_code != 0 || !report.is_object() || !report.contains("splits") ||
      !report["splits"].is_array()) {
    datasets.error =
        PlainText(std::string(absl::StripAsciiWhitespace(result->err)), kMessageBytesMax);
    if (datasets.error.empty()) datasets.error = "the trainer gave no list";
    return;
  }
  std::set<std::string> names;
  for (const json& split : report["splits"]) {
    const std::string path = TextOf(split, "path");
    const std::string name =
        path.empty() ? TextOf(split, "dataset") : absl::StrCat(TextOf(split, "dataset"), ":", path);
    const auto errors = split.find("errors");
    const bool has_errors = errors != split.end() && errors->is_array() && !errors->empty();
    if (!has_errors) {
      names.insert(name);
      continue;
    }
    const json& first = errors->front();
    datasets.errors.push_back(absl::StrCat(name, " ", TextOf(split, "split"), ": ",
                                           first.is_string() ? first.get<std::string>() : ""));
  }
  datasets.names.assign(names.begin(), names.end());
}

}  // namespace

DiskFacts LookAtDisk(const std::string& folder, absl::Duration write_for) {
  DiskFacts disk;
  disk.folder = folder;
  std::filesystem::path there(folder);
  std::error_code ignored;
  while (!std::filesystem::is_directory(there, ignored) && there.has_parent_path() &&
         there != there.parent_path()) {
    there = there.parent_path();
  }
  struct statfs kind {};
  struct statvfs space {};
  if (statfs(there.c_str(), &kind) != 0 || statvfs(there.c_str(), &space) != 0) {
    disk.error = std::strerror(errno);
    return disk;
  }
  disk.file_system = static_cast<uint64_t>(kind.f_type) & 0xffffffffU;
  disk.free_bytes = static_cast<int64_t>(space.f_bavail * space.f_frsize);
  disk.size_bytes = static_cast<int64_t>(space.f_blocks * space.f_frsize);
  // Some file systems have as many inodes as they like, and say 0.
  if (space.f_files > 0) {
    disk.free_files = static_cast<double>(space.f_favail) / static_cast<double>(space.f_files);
  }
  disk.may_write = access(there.c_str(), W_OK) == 0;
  const bool measures = write_for > absl::ZeroDuration();
  if (!measures || !disk.may_write || disk.free_bytes < kWrittenMax) return disk;
  const absl::Status measured = Measure(disk, write_for, there);
  if (!measured.ok()) disk.error = std::string(measured.message());
  return disk;
}

DatasetFacts LookAtDatasets(const std::string& folder, const std::string& named_by, bool is_for_all,
                            const std::string& trainer, const RunProgram& run) {
  DatasetFacts datasets;
  datasets.folder = folder;
  datasets.named_by = named_by;
  datasets.is_for_all = is_for_all;
  if (folder.empty()) return datasets;
  std::error_code ignored;
  datasets.exists = std::filesystem::is_directory(folder, ignored);
  if (!datasets.exists) return datasets;
  if (is_for_all) datasets.closed = ClosedPaths(folder);
  if (trainer.empty()) {
    datasets.error = "trainyard-trainer is missing";
  } else {
    AskTrainer(datasets, trainer, run);
  }
  return datasets;
}

}  // namespace trainyard::doctor
