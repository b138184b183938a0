// Moves what a program has written, and has worker/checkpoint make a checkpoint of it.
#include "worker/program/checkpoint_intake.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/strings.h"
#include "worker/checkpoint/checkpoint.h"

namespace trainyard::program {
namespace {

constexpr int kCallsAfterFullDisk = 20;
constexpr size_t kShownBytesMax = 200;

}  // namespace

std::optional<int64_t> StepOfName(absl::string_view name) {
  size_t end = name.size();
  while (end > 0 && !absl::ascii_isdigit(static_cast<unsigned char>(name[end - 1]))) --end;
  size_t begin = end;
  while (begin > 0 && absl::ascii_isdigit(static_cast<unsigned char>(name[begin - 1]))) --begin;
  int64_t step = 0;
  if (!absl::SimpleAtoi(name.substr(begin, end - begin), &step)) return std::nullopt;
  return step;
}

bool IsUnfinished(absl::string_view name) {
  return absl::StartsWith(name, ".") || absl::EndsWith(name, ".tmp") ||
         absl::EndsWith(name, ".part");
}

int CheckpointIntake::Take(int64_t step) {
  if (calls_to_pass_ > 0) {
    --calls_to_pass_;
    return 0;
  }
  auto names = ListDirectory(from_);
  if (!names.ok()) return 0;
  std::vector<std::pair<int64_t, std::string>> found;
  for (std::string& name : *names) {
    if (IsUnfinished(name) || refused_.count(name) > 0) continue;
    found.emplace_back(StepOfName(name).value_or(step), std::move(name));
  }
  std::sort(found.begin(), found.end());
  int made = 0;
  for (const auto& [of_name, name] : found) made += TakeOne(name, of_name) ? 1 : 0;
  return made;
}

bool CheckpointIntake::TakeOne(const std::string& name, int64_t step) {
  const absl::Status made = checkpoint::AdoptCheckpoint(to_, step, JoinPath(from_, name));
  if (made.ok()) {
    last_step_ = std::max(last_step_, step);
    is_disk_full_ = false;
    return true;
  }
  const std::string shown = PlainText(name, kShownBytesMax);
  if (ErrorReason(made) == "DISK_FULL") {
    calls_to_pass_ = kCallsAfterFullDisk;
    if (!std::exchange(is_disk_full_, true)) {
      mistakes_.push_back(absl::StrCat("checkpoint '", shown, "' waits: ", made.message()));
    }
    return false;
  }
  refused_.insert(name);
  mistakes_.push_back(absl::StrCat("checkpoint '", shown, "' is not taken over: ", made.message()));
  return false;
}

std::vector<std::string> CheckpointIntake::TakeMistakes() {
  return std::exchange(mistakes_, {});
}

}  // namespace trainyard::program
