// Keeps the uid in the state directory, because a worker's attempts are there too: a directory that
// moves to another host is still the same worker.
#include "worker/agent/worker_identity.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/base/labels.h"
#include "common/base/status_macros.h"

namespace trainyard::agent {

absl::StatusOr<std::string> ReadOrMakeUid(const std::string& state_dir) {
  const std::string path = JoinPath(state_dir, "uid");
  auto text = ReadFile(path, 100);
  if (text.ok() && !text->empty()) {
    // Earlier versions let everybody read it, in a folder that only we could enter.
    if (chmod(path.c_str(), 0600) != 0)
      return ErrnoStatus(errno, "cannot change the mode of", path);
    return std::string(absl::StripAsciiWhitespace(*text));
  }
  if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
  const std::string uid = MakeUuid(*Rng::Real());
  TY_RETURN_IF_ERROR(WriteFileAtomically(path, uid + "\n", 0600));
  return uid;
}

absl::StatusOr<std::map<std::string, std::string>> ParseWorkerLabels(
    const std::vector<std::string>& texts) {
  std::map<std::string, std::string> labels;
  for (const std::string& text : texts) {
    TY_ASSIGN_OR_RETURN(auto label, ParseLabel(text));
    const std::string key = label.first;
    if (!labels.insert(std::move(label)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("label '", key, "' is given twice; expected one value for it"));
    }
  }
  if (labels.size() > kLabelsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(labels.size(), " labels; expected at most ", kLabelsMax));
  }
  return labels;
}

}  // namespace trainyard::agent
