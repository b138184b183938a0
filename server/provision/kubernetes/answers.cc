// Walks through JSON whose every part may be missing or of another type.
#include "server/provision/kubernetes/answers.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/provision/core/provider.h"
#include "server/provision/kubernetes/manifest.h"
#include "server/provision/kubernetes/pod.h"

namespace trainyard::provision::kubernetes {
namespace {

using nlohmann::json;

constexpr size_t kReasonBytesMax = 300;
constexpr int kOomExitCode = 137;

const json& Nothing() {
  static const json& nothing = *new json();
  return nothing;
}

// Returns a member, or null.
const json& PartOf(const json& object, const char* name) {
  if (!object.is_object()) return Nothing();
  const auto found = object.find(name);
  return found == object.end() ? Nothing() : *found;
}

std::string WordOf(const json& object, const char* name) {
  const json& part = PartOf(object, name);
  return part.is_string() ? part.get<std::string>() : "";
}

int64_t NumberOf(const json& object, const char* name) {
  const json& part = PartOf(object, name);
  return part.is_number_integer() ? part.get<int64_t>() : 0;
}

// Returns 0 for what is no time.
int64_t TimeOf(const json& object, const char* name) {
  absl::Time time;
  const std::string text = WordOf(object, name);
  if (text.empty() || !absl::ParseTime(absl::RFC3339_full, text, &time, nullptr)) return 0;
  return absl::ToUnixMicros(time);
}

// Returns a part of somebody's output that may be stored and shown.
std::string Shown(absl::string_view text) {
  std::string result(absl::StripAsciiWhitespace(text.substr(0, kReasonBytesMax)));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  return result;
}

// Joins a word and the sentence that explains it.
std::string Explained(const std::string& word, const std::string& sentence) {
  if (word.empty() || sentence.empty()) return Shown(absl::StrCat(word, sentence));
  return Shown(absl::StrCat(word, ": ", sentence));
}

// Returns a condition of that type, or null.
const json& ConditionOf(const json& status, const char* type) {
  for (const json& condition : PartOf(status, "conditions")) {
    if (WordOf(condition, "type") == type) return condition;
  }
  return Nothing();
}

bool IsTrue(const json& condition) {
  return WordOf(condition, "status") == "True";
}

absl::Status BadAnswer(absl::string_view why) {
  return absl::DataLossError(
      absl::StrCat("the API server has answered in another form than asked for: ", why));
}

// Reads what pods and Jobs have in common.
absl::Status ReadCommon(const json& item, Found& found) {
  const json& metadata = PartOf(item, "metadata");
  const json& labels = PartOf(metadata, "labels");
  found.name = WordOf(metadata, "name");
  found.uid = WordOf(metadata, "uid");
  found.pilot = WordOf(labels, kPilotLabel);
  if (found.name.empty() || found.uid.empty() || found.pilot.empty()) {
    return BadAnswer("an entry has no name, no uid or no label of a pilot");
  }
  int32_t nodes = 0;
  const bool is_number = absl::SimpleAtoi(WordOf(labels, kNodesLabel), &nodes);
  found.nodes = is_number && nodes >= 1 && nodes <= kNodesMax ? nodes : 1;
  found.create_us = TimeOf(metadata, "creationTimestamp");
  found.delete_us = TimeOf(metadata, "deletionTimestamp");
  found.start_us = TimeOf(PartOf(item, "status"), "startTime");
  const int64_t limit = NumberOf(PartOf(item, "spec"), "activeDeadlineSeconds");
  if (found.start_us > 0 && limit > 0) found.expire_us = found.start_us + limit * kSecondUs;
  return absl::OkStatus();
}

// Returns the status of the container with the worker, or null.
const json& WorkerStatus(const json& item) {
  const json& statuses = PartOf(PartOf(item, "status"), "containerStatuses");
  if (!statuses.is_array()) return Nothing();
  if (PartOf(PartOf(item, "spec"), "containers").size() == 1 && statuses.size() == 1) {
    return statuses[0];
  }
  for (const json& status : statuses) {
    if (WordOf(status, "name") == kWorkerContainer) return status;
  }
  return Nothing();
}

// Says how a container has ended.
std::string EndOf(const json& terminated) {
  const int64_t code = NumberOf(terminated, "exitCode");
  const std::string word = WordOf(terminated, "reason");
  if (word == "OOMKilled") {
    return absl::StrCat("OOMKilled: it needed more memory than its limit (exit code ",
                        code == 0 ? kOomExitCode : code, ")");
  }
  return Explained(absl::StrCat(word.empty() ? "Error" : word, ", exit code ", code),
                   WordOf(terminated, "message"));
}

// Returns why a pod has failed, and when.
void ReadEnd(const json& item, Found& found) {
  const json& status = PartOf(item, "status");
  const std::string word = WordOf(status, "reason");
  found.reason = Explained(word, WordOf(status, "message"));
  if (word == "DeadlineExceeded" && found.state == ForeignState::kFailed) {
    found.state = ForeignState::kTimedOut;
  }
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const json& container : PartOf(status, list)) {
      const json& terminated = PartOf(PartOf(container, "state"), "terminated");
      found.end_us = std::max(found.end_us, TimeOf(terminated, "finishedAt"));
      if (found.reason.empty() && NumberOf(terminated, "exitCode") != 0) {
        found.reason = EndOf(terminated);
      }
    }
  }
  if (found.end_us == 0) found.end_us = std::max(found.start_us, found.create_us);
}

// Reads why a pod has not begun, or what is wrong with it while it runs.
void ReadHindrance(const json& item, Found& found) {
  const json& status = PartOf(item, "status");
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const json& container : PartOf(status, list)) {
      const json& waiting = PartOf(PartOf(container, "state"), "waiting");
      const std::string word = WordOf(waiting, "reason");
      if (word.empty() || word == "PodInitializing") continue;
      found.reason = Explained(word, WordOf(waiting, "message"));
      for (const char* bad :
           {"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull",
            "CreateContainerConfigError", "CreateContainerError", "RunContainerError"}) {
        if (word == bad) found.cannot_begin = true;
      }
      if (found.cannot_begin) return;
    }
  }
  const json& ready = ConditionOf(status, "Ready");
  const std::string word = WordOf(ready, "reason");
  if (WordOf(status, "reason") == "NodeLost" || WordOf(status, "phase") == "Unknown" ||
      word == "NodeNotReady" || word == "NodeStatusUnknown") {
    found.reason = Explained("NotReady", "its node does not answer");
  }
}

void ReadPod(const json& item, Found& found) {
  const json& status = PartOf(item, "status");
  const std::string phase = WordOf(status, "phase");
  for (const json& owner : PartOf(PartOf(item, "metadata"), "ownerReferences")) {
    if (WordOf(owner, "kind") == "Job") found.is_of_job = true;
  }
  found.has_node = !WordOf(PartOf(item, "spec"), "nodeName").empty();
  if (phase == "Succeeded" || phase == "Failed") {
    found.state = phase == "Failed" ? ForeignState::kFailed : ForeignState::kCompleted;
    ReadEnd(item, found);
    return;
  }
  const json& target = ConditionOf(status, "DisruptionTarget");
  if (found.delete_us > 0) {
    found.state = ForeignState::kLeaving;
    found.reason =
        IsTrue(target) ? Explained(WordOf(target, "reason"), WordOf(target, "message")) : kDeleted;
    return;
  }
  if (!found.has_node) {
    found.state = ForeignState::kWaiting;
    const json& scheduled = ConditionOf(status, "PodScheduled");
    found.reason = Explained(WordOf(scheduled, "reason"), WordOf(scheduled, "message"));
    return;
  }
  found.state = ForeignState::kActive;
  ReadHindrance(item, found);
  const json& terminated = PartOf(PartOf(WorkerStatus(item), "state"), "terminated");
  if (terminated.is_object()) {
    found.worker_ended = true;
    found.reason = EndOf(terminated);
  }
}

void ReadJob(const json& item, Found& found) {
  const json& status = PartOf(item, "status");
  const json& failed = ConditionOf(status, "Failed");
  if (IsTrue(failed)) {
    const bool is_late = WordOf(failed, "reason") == "DeadlineExceeded";
    found.state = is_late ? ForeignState::kTimedOut : ForeignState::kFailed;
    found.reason = Explained(WordOf(failed, "reason"), WordOf(failed, "message"));
    found.end_us = TimeOf(failed, "lastTransitionTime");
  } else if (IsTrue(ConditionOf(status, "Complete"))) {
    found.state = ForeignState::kCompleted;
    found.end_us = TimeOf(status, "completionTime");
  } else if (found.delete_us > 0) {
    found.state = ForeignState::kLeaving;
    found.reason = kDeleted;
  } else if (PartOf(PartOf(item, "spec"), "suspend") == json(true)) {
    found.state = ForeignState::kWaiting;
    const std::string queue = WordOf(PartOf(PartOf(item, "metadata"), "labels"), kQueueLabel);
    found.reason = Shown(absl::StrCat("waits in the queue ", queue));
    found.start_us = 0;
    found.expire_us = 0;
  } else {
    found.state = ForeignState::kActive;
  }
  if (HasEnded(found.state) && found.end_us == 0) found.end_us = found.create_us;
}

absl::StatusOr<Page> ParseList(absl::string_view text, const char* kind,
                               void (*read)(const json& item, Found& found)) {
  const json list = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const json& items = PartOf(list, "items");
  const bool is_whole =
      list.is_object() && list.contains("items") && PartOf(list, "metadata").is_object();
  if (WordOf(list, "kind") != kind || !is_whole || (!items.is_array() && !items.is_null())) {
    return BadAnswer(absl::StrCat("it is no ", kind));
  }
  Page page;
  page.next = WordOf(PartOf(list, "metadata"), "continue");
  for (const json& item : items) {
    Found& found = page.found.emplace_back();
    if (absl::Status status = ReadCommon(item, found); !status.ok()) return status;
    read(item, found);
  }
  return page;
}

}  // namespace

absl::StatusOr<Page> ParsePods(absl::string_view text) {
  return ParseList(text, "PodList", ReadPod);
}

absl::StatusOr<Page> ParseJobs(absl::string_view text) {
  return ParseList(text, "JobList", ReadJob);
}

absl::StatusOr<Made> ParseMade(absl::string_view text) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const json& metadata = PartOf(object, "metadata");
  const json& labels = PartOf(metadata, "labels");
  Made made{WordOf(metadata, "uid"), WordOf(labels, kServerLabel), WordOf(labels, kProviderLabel),
            WordOf(labels, kPilotLabel)};
  if (made.uid.empty()) return BadAnswer("an object has no uid");
  return made;
}

std::string MessageOf(const curl::Response& response) {
  const json status = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  const std::string message = WordOf(status, "message");
  if (!message.empty() && WordOf(status, "kind") == "Status") return Shown(message);
  return absl::StrCat("the API server answers with the status ", response.status);
}

std::string ReasonOf(const curl::Response& response) {
  const json status = json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  return WordOf(status, "kind") == "Status" ? WordOf(status, "reason") : "";
}

}  // namespace trainyard::provision::kubernetes
