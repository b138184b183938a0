// Resolves the link of the run directory, and empties the folder behind it.
#include "worker/run_dir/secrets.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"

namespace trainyard::run_dir {

std::string SecretsPath(const RunDir& dir) {
  return JoinPath(dir.root(), "secrets");
}

std::string SecretsFolder(const RunDir& dir) {
  std::error_code error;
  const auto folder = std::filesystem::canonical(SecretsPath(dir), error);
  return error ? "" : folder.string();
}

std::string SecretsFolderName(const std::string& host, int64_t job, int64_t attempt) {
  return absl::StrCat(host, ".", job, ".", attempt);
}

void RemoveSecrets(const RunDir& dir) {
  const std::string path = SecretsPath(dir);
  const std::filesystem::path folder = SecretsFolder(dir);
  if (folder.empty()) return;
  const std::filesystem::path root = dir.root();
  const std::string ending =
      absl::StrCat(".", root.parent_path().filename().string(), ".", root.filename().string());
  const bool is_in_memory =
      absl::EndsWith(folder.filename().string(), ending) &&
      absl::StartsWith(folder.parent_path().filename().string(), kSecretsBase);
  struct stat info {};
  const bool is_folder = lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (!is_in_memory && !is_folder) return;
  const auto names = ListDirectory(folder.string());
  if (!names.ok()) return;
  for (const std::string& name : *names) (void)unlink((folder / name).c_str());
  // Only the daemon may remove a folder below its own.
  (void)rmdir(folder.c_str());
}

}  // namespace trainyard::run_dir
