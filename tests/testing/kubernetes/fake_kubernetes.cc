// Keeps objects as JSON, and answers in the words of Kubernetes.
#include "tests/testing/kubernetes/fake_kubernetes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/env.h"

namespace trainyard::testing {
namespace {

using nlohmann::json;

HttpReceiver::Reply Refuse(int status, const std::string& reason, const std::string& message) {
  return {status, json{{"kind", "Status"},
                       {"apiVersion", "v1"},
                       {"status", "Failure"},
                       {"message", message},
                       {"reason", reason},
                       {"code", status}}
                      .dump()};
}

std::string NowText(absl::Duration later = absl::ZeroDuration()) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", Clock::Real()->Now() + later, absl::UTCTimeZone());
}

// Returns the value of a word of a query, without escapes.
std::string QueryOf(const std::string& query, const std::string& name) {
  for (const absl::string_view part : absl::StrSplit(query, '&')) {
    const std::pair<std::string, std::string> word = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (word.first != name) continue;
    std::string plain;
    for (size_t i = 0; i < word.second.size(); ++i) {
      if (word.second[i] == '%' && i + 2 < word.second.size()) {
        plain += absl::HexStringToBytes(word.second.substr(i + 1, 2));
        i += 2;
      } else {
        plain += word.second[i];
      }
    }
    return plain;
  }
  return "";
}

bool HasLabels(const json& object, const std::string& selector) {
  const json labels = object["metadata"].value("labels", json::object());
  for (const absl::string_view part : absl::StrSplit(selector, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> label = absl::StrSplit(part, '=');
    if (labels.value(label.first, "") != label.second) return false;
  }
  return true;
}

}  // namespace

FakeKubernetes::FakeKubernetes() {
  receiver_.AnswerBy([this](const HttpReceiver::Request& request) { return Answer(request); });
}

void FakeKubernetes::SetToken(const std::string& token) {
  const MutexLock lock(&mutex_);
  token_ = token;
}

void FakeKubernetes::Add(Fault fault) {
  const MutexLock lock(&mutex_);
  faults_.push_back(std::move(fault));
}

size_t FakeKubernetes::faults_left() {
  const MutexLock lock(&mutex_);
  return faults_.size();
}

bool FakeKubernetes::Patch(const std::string& kind, const std::string& name,
                           const std::string& patch) {
  const MutexLock lock(&mutex_);
  const auto found = objects_[kind].find(name);
  if (found == objects_[kind].end()) return false;
  json object = json::parse(found->second);
  object.merge_patch(json::parse(patch));
  found->second = object.dump();
  return true;
}

void FakeKubernetes::Put(const std::string& kind, const std::string& object) {
  const MutexLock lock(&mutex_);
  (void)Create(kind, "", object);
}

std::string FakeKubernetes::Get(const std::string& kind, const std::string& name) {
  const MutexLock lock(&mutex_);
  const auto found = objects_[kind].find(name);
  return found == objects_[kind].end() ? "" : found->second;
}

std::vector<std::string> FakeKubernetes::Names(const std::string& kind) {
  const MutexLock lock(&mutex_);
  std::vector<std::string> names;
  for (const auto& [name, text] : objects_[kind]) names.push_back(name);
  return names;
}

void FakeKubernetes::Remove(const std::string& kind, const std::string& name) {
  const MutexLock lock(&mutex_);
  RemoveLocked(kind, name);
}

void FakeKubernetes::RemoveLocked(const std::string& kind, const std::string& name) {
  const auto found = objects_[kind].find(name);
  if (found == objects_[kind].end()) return;
  objects_[kind].erase(found);
  const auto exists = [this](const json& owner) {
    const std::string of = owner["kind"] == "Job" ? "jobs" : "pods";
    const auto object = objects_[of].find(owner["name"].get<std::string>());
    return object != objects_[of].end() &&
           json::parse(object->second)["metadata"]["uid"] == owner["uid"];
  };
  std::vector<std::pair<std::string, std::string>> orphans;
  for (const char* owned : {"secrets", "pods"}) {
    for (const auto& [each, text] : objects_[owned]) {
      const json owners = json::parse(text)["metadata"].value("ownerReferences", json::array());
      if (!owners.empty() && std::none_of(owners.begin(), owners.end(), exists)) {
        orphans.emplace_back(owned, each);
      }
    }
  }
  for (const auto& [owned, each] : orphans) objects_[owned].erase(each);
}

void FakeKubernetes::KeepDeleted(bool does) {
  const MutexLock lock(&mutex_);
  keeps_deleted_ = does;
}

void FakeKubernetes::DeleteNamespace() {
  const MutexLock lock(&mutex_);
  objects_.clear();
  has_space_ = false;
}

void FakeKubernetes::SetPageSize(int entries) {
  const MutexLock lock(&mutex_);
  page_size_ = entries;
}

HttpReceiver::Reply FakeKubernetes::Answer(const HttpReceiver::Request& request) {
  Fault fault;
  HttpReceiver::Reply reply;
  {
    const MutexLock lock(&mutex_);
    const auto met = std::find_if(faults_.begin(), faults_.end(), [&](const Fault& each) {
      return (each.method.empty() || each.method == request.method) &&
             absl::StrContains(request.path, each.path);
    });
    if (met != faults_.end()) {
      fault = *met;
      faults_.erase(met);
    }
    if (fault.status == 0 || fault.is_after) reply = Carry(request);
  }
  if (fault.wait) fault.wait();
  if (fault.status != 0) {
    const std::string& body = fault.body;
    reply = body.empty() ? Refuse(fault.status, "Told", "told") : HttpReceiver::Reply{200, body};
    reply.status = fault.status;
  }
  reply.headers = fault.headers;
  reply.is_cut = fault.is_cut;
  return reply;
}

HttpReceiver::Reply FakeKubernetes::Carry(const HttpReceiver::Request& request) {
  const auto token = request.headers.find("authorization");
  if (token == request.headers.end() || token->second != absl::StrCat("Bearer ", token_)) {
    return Refuse(401, "Unauthorized", "Unauthorized");
  }
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(request.path, absl::MaxSplits('?', 1));
  const std::vector<std::string> words = absl::StrSplit(parts.first, '/', absl::SkipEmpty());
  const size_t space = words.size() > 1 && words[1] == "batch" ? 3 : 2;
  if (words.size() < space + 3 || words[space] != "namespaces" || words[space + 1] != kSpace) {
    return Refuse(404, "NotFound", "the server could not find the requested resource");
  }
  const std::string& kind = words[space + 2];
  const bool is_right = space == 3 ? kind == "jobs" : kind == "pods" || kind == "secrets";
  if (!is_right) return Refuse(404, "NotFound", "the server could not find the requested resource");
  if (words.size() == space + 3) {
    if (request.method == "POST") return Create(kind, parts.second, request.body);
    if (request.method == "GET") return List(kind, parts.second);
  } else {
    const std::string& name = words[space + 3];
    if (!objects_[kind].contains(name)) {
      return Refuse(404, "NotFound", absl::StrCat(kind, " \"", name, "\" not found"));
    }
    if (request.method == "GET") return {200, objects_[kind][name]};
    if (request.method == "DELETE") return Delete(kind, name, request.body);
  }
  return Refuse(405, "MethodNotAllowed", "the server does not allow this method");
}

HttpReceiver::Reply FakeKubernetes::Create(const std::string& kind, const std::string& query,
                                           const std::string& body) {
  if (!has_space_) {
    return Refuse(404, "NotFound", absl::StrCat("namespaces \"", kSpace, "\" not found"));
  }
  json object = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object["metadata"]["name"].is_string()) {
    return Refuse(422, "Invalid", "metadata.name: Required value");
  }
  const std::string name = object["metadata"]["name"];
  if (objects_[kind].contains(name)) {
    return Refuse(409, "AlreadyExists", absl::StrCat(kind, " \"", name, "\" already exists"));
  }
  json& metadata = object["metadata"];
  metadata["uid"] = absl::StrCat("uid-", ++uids_);
  metadata["namespace"] = kSpace;
  if (!metadata.contains("creationTimestamp")) metadata["creationTimestamp"] = NowText();
  if (kind != "secrets" && !object.contains("status")) {
    object["status"] = kind == "pods" ? json{{"phase", "Pending"}} : json::object();
  }
  if (QueryOf(query, "dryRun") != "All") objects_[kind][name] = object.dump();
  return {201, object.dump()};
}

HttpReceiver::Reply FakeKubernetes::List(const std::string& kind, const std::string& query) {
  int limit = page_size_;
  int asked = 0;
  if (absl::SimpleAtoi(QueryOf(query, "limit"), &asked)) limit = std::min(limit, asked);
  const std::string from = absl::StrReplaceAll(QueryOf(query, "continue"), {{"after/", ""}});
  json items = json::array();
  std::string next;
  for (const auto& [name, text] : objects_[kind]) {
    const json object = json::parse(text);
    if (name <= from || !HasLabels(object, QueryOf(query, "labelSelector"))) continue;
    if (static_cast<int>(items.size()) == limit) {
      // This has characters that a query does not have.
      next = absl::StrCat("after/", items.back()["metadata"]["name"].get<std::string>());
      break;
    }
    items.push_back(object);
  }
  json metadata = {{"resourceVersion", "17"}};
  if (!next.empty()) metadata["continue"] = next;
  return {200, json{{"kind", kind == "pods" ? "PodList" : "JobList"},
                    {"apiVersion", kind == "pods" ? "v1" : "batch/v1"},
                    {"metadata", std::move(metadata)},
                    {"items", std::move(items)}}
                   .dump()};
}

HttpReceiver::Reply FakeKubernetes::Delete(const std::string& kind, const std::string& name,
                                           const std::string& body) {
  json object = json::parse(objects_[kind][name]);
  const json options = json::parse(body, nullptr, /*allow_exceptions=*/false);
  const bool has_options = options.is_object();
  const json uid = has_options ? options.value("preconditions", json::object()) : json::object();
  if (uid.contains("uid") && uid["uid"] != object["metadata"]["uid"]) {
    return Refuse(409, "Conflict", "the UID in the precondition does not match");
  }
  const bool is_forced = has_options && options.value("gracePeriodSeconds", 1) == 0;
  const std::string phase = object.value("status", json::object()).value("phase", "");
  const bool is_running = kind == "pods" && phase != "Succeeded" && phase != "Failed" &&
                          object["spec"].contains("nodeName");
  if (keeps_deleted_ && is_running && !is_forced) {
    if (!object["metadata"].contains("deletionTimestamp")) {
      const int grace = object["spec"].value("terminationGracePeriodSeconds", 30);
      object["metadata"]["deletionTimestamp"] = NowText(absl::Seconds(grace));
      objects_[kind][name] = object.dump();
    }
  } else {
    RemoveLocked(kind, name);
  }
  return {200, object.dump()};
}

}  // namespace trainyard::testing
