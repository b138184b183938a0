// Speaks with the API server, and says of each answer what it proves.
#include "server/provision/kubernetes/kubernetes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace trainyard::provision::kubernetes {
namespace {

constexpr int kSecretAttemptsMax = 3;
// Newer API servers refuse words that they do not know, and older ones drop them.
constexpr char kStrict[] = "fieldValidation=Strict";
constexpr char kDryRun[] = "dryRun=All";

bool IsThere(const absl::StatusOr<curl::Response>& answer) {
  return answer.ok() && answer->status == 409 && ReasonOf(*answer) == "AlreadyExists";
}

bool IsSuccess(const absl::StatusOr<curl::Response>& answer) {
  return answer.ok() && answer->status >= 200 && answer->status < 300;
}

// Returns true if the request has not been carried out for certain.
bool IsRefusal(const absl::StatusOr<curl::Response>& answer) {
  if (!answer.ok()) {
    // Without a token, with a wrong certificate or a wrong address, nothing was sent.
    return absl::IsNotFound(answer.status()) || absl::IsFailedPrecondition(answer.status()) ||
           absl::IsInvalidArgument(answer.status());
  }
  return answer->status >= 400 && answer->status < 500 && answer->status != 408;
}

std::string WhyNot(const absl::StatusOr<curl::Response>& answer) {
  if (!answer.ok()) {
    return absl::StrCat("the API server cannot be asked: ", answer.status().message());
  }
  if (answer->status == 401) {
    return absl::StrCat("the API server does not accept our token: ", MessageOf(*answer));
  }
  return MessageOf(*answer);
}

std::string DeleteOptions(const Chore& chore) {
  // The names of these have no character that JSON would escape.
  return absl::StrCat(
      R"({"apiVersion":"v1","kind":"DeleteOptions")",
      chore.is_job ? R"(,"propagationPolicy":"Background")" : "",
      chore.is_forced ? R"(,"gracePeriodSeconds":0)" : "",
      chore.uid.empty() ? "" : absl::StrCat(R"(,"preconditions":{"uid":")", chore.uid, R"("})"),
      "}");
}

// Returns what is shown of a pilot that was seen to leave, and is gone.
ListedPilot EndOfLeaving(const ListedPilot& seen) {
  ListedPilot end = seen;
  const bool is_deleted = absl::EndsWith(seen.reason, kDeleted);
  end.state = is_deleted ? ForeignState::kCancelled : ForeignState::kFailed;
  return end;
}

}  // namespace

Kubernetes::Kubernetes(std::string server_id, ProviderSpec spec, ManifestOptions options,
                       trainyard::kubernetes::Access access, Clock& clock,
                       const std::atomic<bool>& is_stopping, absl::Duration timeout)
    : server_id_(std::move(server_id)),
      spec_(std::move(spec)),
      selector_(absl::StrCat(kServerLabel, "=", server_id_, ",", kProviderLabel, "=", spec_.name)),
      options_(std::move(options)),
      clock_(clock),
      client_(std::move(access), {timeout, kApiAnswerBytesMax}, is_stopping) {}

Kubernetes::Answer Kubernetes::Call(const std::string& method, const std::string& path,
                                    const std::string& body) const {
  Answer answer = client_.Call(method, path, body);
  if (answer.ok() && (answer->status == 429 || answer->status == 503)) {
    int64_t seconds = 0;
    if (absl::SimpleAtoi(curl::HeaderOf(*answer, "retry-after"), &seconds) && seconds > 0) {
      quiet_until_ = clock_.Uptime() + std::min(absl::Seconds(seconds), kQuietMax);
    }
  }
  return answer;
}

std::string Kubernetes::WhyQuiet() const {
  const absl::Duration left = quiet_until_ - clock_.Uptime();
  if (left <= absl::ZeroDuration()) return "";
  return absl::StrCat("the API server has asked to be left alone for another ",
                      absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))));
}

std::string Kubernetes::PathOf(bool is_job, const std::string& name) const {
  return absl::StrCat(is_job ? "/apis/batch/v1" : "/api/v1", "/namespaces/", options_.space,
                      is_job ? "/jobs" : "/pods", name.empty() ? "" : "/", name);
}

std::string Kubernetes::SecretPath(const std::string& name) const {
  return absl::StrCat("/api/v1/namespaces/", options_.space, "/secrets", name.empty() ? "" : "/",
                      name);
}

bool Kubernetes::IsPilotOfOurs(const std::string& pilot) const {
  return PilotNumber(server_id_, spec_.name, pilot).has_value();
}

absl::Status Kubernetes::TryPost(const std::string& path, const std::string& body) const {
  const Answer answer = Call("POST", absl::StrCat(path, "?", kDryRun, "&", kStrict), body);
  if (IsSuccess(answer)) return absl::OkStatus();
  if (IsRefusal(answer)) return error::ProviderRefuses(spec_.name, WhyNot(answer));
  return absl::UnavailableError(WhyNot(answer));
}

absl::Status Kubernetes::TryOut() const {
  TY_RETURN_IF_ERROR(CheckPod(spec_, options_));
  const std::string pilot = PilotName(server_id_, spec_.name, 0);
  const bool is_job = !options_.queue.empty();
  TY_RETURN_IF_ERROR(
      TryPost(PathOf(is_job), is_job ? JobManifest(server_id_, spec_, options_, pilot)
                                     : PodManifest(server_id_, spec_, options_, pilot, 0)));
  const std::vector<std::string> tokens(static_cast<size_t>(spec_.nodes), "token");
  TY_RETURN_IF_ERROR(
      TryPost(SecretPath(), SecretManifest(server_id_, spec_, pilot, tokens, /*owners=*/{})));
  // A server that cannot list would lose sight of its pilots.
  const Answer listed = Call("GET", absl::StrCat(PathOf(false), "?limit=1&labelSelector=",
                                                 trainyard::kubernetes::EscapeQuery(selector_)));
  if (IsSuccess(listed)) return absl::OkStatus();
  if (IsRefusal(listed)) return error::ProviderRefuses(spec_.name, WhyNot(listed));
  return absl::UnavailableError(WhyNot(listed));
}

Kubernetes::Creation Kubernetes::LookFor(bool is_job, const std::string& name,
                                         const std::string& pilot, std::string why) const {
  const Answer answer = Call("GET", PathOf(is_job, name));
  if (!IsSuccess(answer)) return {SubmitResult::Kind::kUnknown, "", std::move(why)};
  const auto made = ParseMade(answer->body);
  if (!made.ok()) return {SubmitResult::Kind::kUnknown, "", std::move(why)};
  if (made->server == server_id_ && made->provider == spec_.name && made->pilot == pilot) {
    return {SubmitResult::Kind::kAccepted, made->uid, ""};
  }
  return {SubmitResult::Kind::kRefused, "",
          absl::StrCat("there is another ", is_job ? "Job" : "pod", " '", name,
                       "', which is not of this provider; delete it")};
}

Kubernetes::Creation Kubernetes::Create(bool is_job, const std::string& name,
                                        const std::string& pilot, const std::string& body) const {
  const Answer answer = Call("POST", absl::StrCat(PathOf(is_job), "?", kStrict), body);
  if (IsSuccess(answer)) {
    const auto made = ParseMade(answer->body);
    if (made.ok()) return {SubmitResult::Kind::kAccepted, made->uid, ""};
    return LookFor(is_job, name, pilot, std::string(made.status().message()));
  }
  if (IsThere(answer)) {
    return LookFor(is_job, name, pilot, WhyNot(answer));
  }
  if (IsRefusal(answer)) return {SubmitResult::Kind::kRefused, "", WhyNot(answer)};
  return LookFor(is_job, name, pilot, WhyNot(answer));
}

absl::Status Kubernetes::CreateSecret(const std::string& pilot,
                                      const std::vector<std::string>& tokens,
                                      const std::vector<Owner>& owners) const {
  const std::string body = SecretManifest(server_id_, spec_, pilot, tokens, owners);
  bool may_be_there = false;
  std::string why;
  for (int attempt = 0; attempt < kSecretAttemptsMax; ++attempt) {
    const Answer answer = Call("POST", absl::StrCat(SecretPath(), "?", kStrict), body);
    if (IsSuccess(answer)) return absl::OkStatus();
    why = WhyNot(answer);
    if (IsThere(answer)) {
      // It is that of a request before, or of an older pilot of the same name.
      if (may_be_there) return absl::OkStatus();
      (void)Call("DELETE", SecretPath(pilot));
    } else if (IsRefusal(answer)) {
      break;
    } else {
      may_be_there = true;
    }
  }
  return absl::UnavailableError(absl::StrCat("the Secret with the tokens is not there: ", why));
}

SubmitResult Kubernetes::TakeBack(const std::string& pilot, SubmitResult::Kind kind,
                                  std::string why) const {
  const absl::Status gone = Cancel(pilot);
  // A list shows parts that are still there, or that come yet.
  if (!gone.ok()) kind = SubmitResult::Kind::kUnknown;
  return {pilot, kind, "", std::move(why)};
}

SubmitResult Kubernetes::Submit(const std::string& pilot,
                                const std::vector<std::string>& tokens) const {
  if (std::string why = WhyQuiet(); !why.empty()) {
    return {pilot, SubmitResult::Kind::kRefused, "", std::move(why)};
  }
  // An older server may have taken a pod that this one does not.
  if (const absl::Status pod = CheckPod(spec_, options_); !pod.ok()) {
    return {pilot, SubmitResult::Kind::kRefused, "", std::string(pod.message())};
  }
  const bool is_job = !options_.queue.empty();
  const int32_t parts = is_job ? 1 : spec_.nodes;
  std::vector<Owner> owners;
  for (int32_t part = 0; part < parts; ++part) {
    const std::string name = is_job ? pilot : PilotWorkerName(pilot, spec_.nodes, part);
    const std::string body = is_job ? JobManifest(server_id_, spec_, options_, pilot)
                                    : PodManifest(server_id_, spec_, options_, pilot, part);
    Creation made = Create(is_job, name, pilot, body);
    if (made.kind != SubmitResult::Kind::kAccepted) {
      if (owners.empty()) return {pilot, made.kind, "", std::move(made.reason)};
      return TakeBack(pilot, made.kind, std::move(made.reason));
    }
    owners.push_back({is_job ? "batch/v1" : "v1", is_job ? "Job" : "Pod", name, made.uid});
  }
  const absl::Status secret = CreateSecret(pilot, tokens, owners);
  if (!secret.ok()) {
    return TakeBack(pilot, SubmitResult::Kind::kRefused, std::string(secret.message()));
  }
  return {pilot, SubmitResult::Kind::kAccepted, pilot, ""};
}

absl::StatusOr<std::vector<Found>> Kubernetes::ListAll(bool is_job,
                                                       const std::string& selector) const {
  const std::string query =
      absl::StrCat(PathOf(is_job), "?limit=", kPageSize,
                   "&labelSelector=", trainyard::kubernetes::EscapeQuery(selector));
  for (int attempt = 0; attempt < kListAttemptsMax; ++attempt) {
    std::vector<Found> all;
    std::string next;
    bool is_expired = false;
    for (int pages = 0; pages < kPagesMax && !is_expired; ++pages) {
      const std::string place =
          next.empty() ? "" : absl::StrCat("&continue=", trainyard::kubernetes::EscapeQuery(next));
      // Without a resourceVersion, this is what etcd has, and no older copy of it.
      const Answer answer = Call("GET", query + place);
      is_expired = answer.ok() && answer->status == 410 && !next.empty();
      if (is_expired) continue;
      if (!IsSuccess(answer)) return absl::UnavailableError(WhyNot(answer));
      TY_ASSIGN_OR_RETURN(Page page, is_job ? ParseJobs(answer->body) : ParsePods(answer->body));
      std::move(page.found.begin(), page.found.end(), std::back_inserter(all));
      if (page.next.empty()) return all;
      next = std::move(page.next);
    }
    if (!is_expired) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the list has more than ", kPagesMax * kPageSize, " entries"));
    }
  }
  return absl::UnavailableError(absl::StrCat("the list was too old before its last page was read, ",
                                             kListAttemptsMax, " times in a row"));
}

Listing Kubernetes::List(const std::vector<std::string>& foreign_ids) const {
  Listing listing;
  listing.begin_us = absl::ToUnixMicros(clock_.Now());
  listing.failure = WhyQuiet();
  if (!listing.failure.empty()) return listing;
  const auto pods = ListAll(/*is_job=*/false, selector_);
  absl::StatusOr<std::vector<Found>> jobs = std::vector<Found>();
  if (!pods.ok()) {
    jobs = pods.status();
  } else if (!options_.queue.empty()) {
    jobs = ListAll(/*is_job=*/true, selector_);
  }
  if (!jobs.ok()) {
    listing.failure = std::string(jobs.status().message());
    return listing;
  }
  Sights sights = JoinPilots(*pods, *jobs, absl::ToUnixMicros(clock_.Now()));
  listing.pilots = std::move(sights.pilots);
  std::set<std::string> seen;
  for (ListedPilot& pilot : listing.pilots) {
    seen.insert(pilot.foreign_id);
    if (pilot.state == ForeignState::kLeaving) {
      // Once it is deleted, the cluster does not tell any more why.
      pilot.reason = leaving_.try_emplace(pilot.foreign_id, pilot).first->second.reason;
    } else {
      leaving_.erase(pilot.foreign_id);
    }
  }
  for (const std::string& id : foreign_ids) {
    const auto left = leaving_.find(id);
    if (left != leaving_.end() && !seen.contains(id)) {
      listing.pilots.push_back(EndOfLeaving(left->second));
    }
  }
  std::erase_if(leaving_, [&](const auto& entry) {
    return !seen.contains(entry.first) &&
           std::find(foreign_ids.begin(), foreign_ids.end(), entry.first) == foreign_ids.end();
  });
  if (sights.chores.size() > kChoresMax) sights.chores.resize(kChoresMax);
  for (const Chore& chore : sights.chores) {
    const absl::Status done = Delete(chore);
    if (!done.ok()) {
      LogWarning("a pod of a pilot cannot be deleted now",
                 {{"name", chore.name}, {"error", std::string(done.message())}});
      // The next list finds the rest again, and whoever waits for an answer does not wait longer.
      break;
    }
  }
  return listing;
}

absl::Status Kubernetes::Delete(const Chore& chore) const {
  const Answer answer = Call("DELETE", PathOf(chore.is_job, chore.name), DeleteOptions(chore));
  // With another uid, it is another one, and the meant one is gone.
  const bool is_gone = answer.ok() && (answer->status == 404 || answer->status == 409);
  if (IsSuccess(answer) || is_gone) return absl::OkStatus();
  return absl::UnavailableError(WhyNot(answer));
}

absl::StatusOr<bool> Kubernetes::LacksTokens(const std::string& pilot) const {
  if (std::string why = WhyQuiet(); !why.empty()) return absl::UnavailableError(why);
  const std::string body = SecretManifest(server_id_, spec_, pilot, {"token"}, /*owners=*/{});
  const Answer answer = Call("POST", absl::StrCat(SecretPath(), "?", kDryRun), body);
  if (IsThere(answer)) return false;
  if (IsSuccess(answer)) return true;
  return absl::UnavailableError(WhyNot(answer));
}

absl::Status Kubernetes::Cancel(const std::string& foreign_id) const {
  if (!IsPilotOfOurs(foreign_id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", foreign_id, "' is no pilot of provider '", spec_.name, "'"));
  }
  if (!options_.queue.empty()) {
    TY_RETURN_IF_ERROR(Delete({/*is_job=*/true, foreign_id, "", false}));
  }
  TY_ASSIGN_OR_RETURN(
      const std::vector<Found> pods,
      ListAll(/*is_job=*/false, absl::StrCat(selector_, ",", kPilotLabel, "=", foreign_id)));
  absl::Status result;
  for (const Found& pod : pods) {
    if (HasEnded(pod.state) || pod.delete_us > 0) continue;
    result.Update(Delete({/*is_job=*/false, pod.name, pod.uid, false}));
  }
  return result;
}

void Kubernetes::DropTokens(const std::string& pilot) const {
  if (IsPilotOfOurs(pilot)) (void)Call("DELETE", SecretPath(pilot));
}

}  // namespace trainyard::provision::kubernetes
