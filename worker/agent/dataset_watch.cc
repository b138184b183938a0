// Starts the trainer as a child that prints into a file, and reads that file.
#include "worker/agent/dataset_watch.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "nlohmann/json.hpp"
#include "worker/agent/launch.h"
#include "worker/agent/launch_as.h"

namespace trainyard::agent {
namespace {

using nlohmann::json;

// The server takes no more.
constexpr size_t kSplitsMax = 1000;
constexpr int64_t kListBytesMax = int64_t{4} << 20;
// A folder with more entries than this is looked at by its own time of change only.
constexpr size_t kSignedEntriesMax = 10'000;
constexpr size_t kErrorBytesMax = 1000;
constexpr int kLowestPriority = 19;
constexpr absl::Duration kChildPoll = absl::Milliseconds(100);

std::string TextOf(const json& split, const char* key) {
  const auto field = split.find(key);
  return field != split.end() && field->is_string() ? field->get<std::string>() : "";
}

int64_t NumberOf(const json& split, const char* key) {
  const auto field = split.find(key);
  return field != split.end() && field->is_number_integer() ? field->get<int64_t>() : 0;
}

DatasetSplit SplitOf(const json& split) {
  DatasetSplit found;
  found.dataset = TextOf(split, "dataset");
  found.path = TextOf(split, "path");
  found.split = TextOf(split, "split");
  found.samples = NumberOf(split, "samples");
  found.classes = NumberOf(split, "classes");
  found.shape = TextOf(split, "shape");
  found.digest = TextOf(split, "digest");
  const auto errors = split.find("errors");
  if (errors != split.end() && errors->is_array() && !errors->empty() &&
      errors->front().is_string()) {
    found.error = errors->front().get<std::string>();
  }
  return found;
}

// Appends name, size and time of change of what lies in the folder.
void Sign(const std::string& folder, std::string& text, std::vector<std::string>* folders) {
  const auto names = ListDirectory(folder);
  if (!names.ok() || names->size() > kSignedEntriesMax) return;
  std::vector<std::string> sorted = *names;
  std::sort(sorted.begin(), sorted.end());
  for (const std::string& name : sorted) {
    const std::string path = JoinPath(folder, name);
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0) continue;
    absl::StrAppend(&text, name, " ", info.st_size, " ", info.st_mtim.tv_sec, ".",
                    info.st_mtim.tv_nsec, "\n");
    if (folders != nullptr && S_ISDIR(info.st_mode)) folders->push_back(path);
  }
}

}  // namespace

absl::StatusOr<Datasets> ParseDatasets(absl::string_view text) {
  const json list = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto splits = list.is_object() ? list.find("splits") : list.end();
  if (!list.is_object() || splits == list.end() || !splits->is_array()) {
    return absl::InternalError("the trainer has printed no list of data sets");
  }
  Datasets datasets;
  for (const json& split : *splits) {
    if (split.is_object() && datasets.size() < kSplitsMax) datasets.push_back(SplitOf(split));
  }
  return datasets;
}

std::string FolderSignature(const std::string& folder) {
  struct stat info = {};
  if (folder.empty() || stat(folder.c_str(), &info) != 0) return "";
  std::string text = absl::StrCat(info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, "\n");
  std::vector<std::string> folders;
  Sign(folder, text, &folders);
  for (const std::string& below : folders) Sign(below, text, nullptr);
  return ContentHash(text);
}

DatasetWatch::DatasetWatch(Options options, std::function<void()> on_change)
    : options_(std::move(options)), on_change_(std::move(on_change)) {}

DatasetWatch::~DatasetWatch() {
  Stop();
}

void DatasetWatch::Start() {
  thread_ = std::thread([this] { Run(); });
}

void DatasetWatch::Stop() {
  {
    const absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const Datasets> DatasetWatch::Latest() const {
  const absl::MutexLock lock(&mutex_);
  return latest_;
}

void DatasetWatch::Run() {
  std::optional<std::string> seen;
  while (true) {
    const std::string signature = FolderSignature(options_.dataset_dir);
    if (seen != signature) {
      // Files that are still being copied change again, and are looked at again.
      auto found = signature.empty() ? absl::StatusOr<Datasets>(Datasets()) : Look();
      if (found.ok()) {
        const absl::MutexLock lock(&mutex_);
        latest_ = std::make_shared<const Datasets>(*std::move(found));
      } else if (!absl::IsCancelled(found.status())) {
        LogWarning(
            "the data sets of this host are not known",
            {{"folder", options_.dataset_dir}, {"error", std::string(found.status().message())}});
      }
      seen = signature;
      on_change_();
    }
    const absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), options_.interval)) return;
  }
}

absl::StatusOr<pid_t> DatasetWatch::StartTrainer(const std::string& out,
                                                 const std::string& err) const {
  const std::vector<std::string> words = {options_.trainer, "--data", "ls", "--dataset_dir",
                                          options_.dataset_dir};
  if (options_.reader.owner.is_self) return StartProgram(words, out, err);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL;
  TY_ASSIGN_OR_RETURN(const UniqueFd output, OpenFile(out, kFlags, 0600));
  TY_ASSIGN_OR_RETURN(const UniqueFd log, OpenFile(err, kFlags, 0600));
  LaunchOptions launch;
  launch.words = words;
  launch.directory = "/";
  launch.output = output.get();
  launch.log = log.get();
  return LaunchAs(options_.reader, launch);
}

absl::Status DatasetWatch::Failure(const std::string& log) const {
  const auto why = ReadFile(log, kListBytesMax);
  const std::string as =
      options_.reader.owner.is_self
          ? ""
          : absl::StrCat(" as ", options_.reader.name, ", to whom the folder must be readable");
  return absl::InternalError(absl::StrCat("'", options_.trainer, " --data ls' failed", as,
                                          why.ok() ? ": " : "",
                                          why.ok() ? PlainText(*why, kErrorBytesMax) : ""));
}

absl::StatusOr<Datasets> DatasetWatch::Look() {
  const std::string out = JoinPath(options_.state_dir, "datasets.json");
  const std::string err = JoinPath(options_.state_dir, "datasets.log");
  for (const std::string& path : {out, err}) TY_RETURN_IF_ERROR(RemoveTree(path));
  TY_ASSIGN_OR_RETURN(const pid_t child, StartTrainer(out, err));
  // Training comes first. If this fails, the trainer looks at the usual priority.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(child), kLowestPriority);
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) return absl::InternalError("the trainer cannot be waited for");
    const absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(absl::Condition(&stop_), kChildPoll)) continue;
    (void)kill(child, SIGKILL);
    (void)waitpid(child, &status, 0);
    return absl::CancelledError("the daemon ends");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return Failure(err);
  TY_ASSIGN_OR_RETURN(const std::string text, ReadFile(out, kListBytesMax));
  return ParseDatasets(text);
}

}  // namespace trainyard::agent
