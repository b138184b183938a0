// Decides what is told. It reads records only.
#include "server/notify/derive.h"

#include <algorithm>
#include <map>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/tls/digest.h"
#include "server/notify/message.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::notify {
namespace {

constexpr char kRankStuck[] = "RANK_STUCK";
constexpr size_t kIdBytes = 16;

const std::map<std::string, uint32_t>& EventNames() {
  static const auto* names = new std::map<std::string, uint32_t>{
      {"start", kStart}, {"end", kEnd}, {"failure", kFailure}, {"stuck", kStuck}};
  return *names;
}

bool HasEnded(const core::JobRecord& job) {
  return job.end_us != 0;
}

std::optional<core::Failure> FailureOf(const core::AttemptRecord& attempt) {
  if (const auto* failed = std::get_if<core::attempt_fsm::Failed>(&attempt.state)) {
    return failed->failure;
  }
  if (const auto* lost = std::get_if<core::attempt_fsm::Lost>(&attempt.state)) {
    return lost->failure;
  }
  return std::nullopt;
}

std::optional<core::Failure> FailureOf(const core::JobRecord& job) {
  if (const auto* failed = std::get_if<core::job_fsm::Failed>(&job.state)) return failed->failure;
  return std::nullopt;
}

// Returns what the event is to a target that wants these events, or 0.
uint32_t BitFor(const core::EventRecord& event, const Subject& subject, uint32_t wanted) {
  const core::JobRecord& job = subject.job;
  if (subject.attempt == nullptr) {
    if (event.type == "JOB_RUNNING") return event.time_us == job.start_us ? wanted & kStart : 0;
    return wanted & kEnd;
  }
  const auto failure = FailureOf(*subject.attempt);
  if (!failure.has_value()) return 0;
  if (failure->reason == kRankStuck && (wanted & kStuck) != 0) return kStuck;
  const bool is_told_as_end =
      (wanted & kEnd) != 0 && HasEnded(job) && subject.attempt->id.number == job.attempt;
  return is_told_as_end ? 0 : wanted & kFailure;
}

std::string IdOf(const core::EventRecord& event, const Subject& subject,
                 const store::TargetRecord& target) {
  const std::string all = absl::StrCat(subject.job.submission->uid, "\n", event.sequence, "\n",
                                       event.time_us, "\n", event.type, "\n", target.name, "\n",
                                       target.create_us, "\n", target.webhook, "\n", target.mail);
  return absl::BytesToHexString(tls::Sha256(all).substr(0, kIdBytes));
}

}  // namespace

std::string EventText(uint32_t bit) {
  for (const auto& [name, value] : EventNames()) {
    if (value == bit) return name;
  }
  return "";
}

uint32_t ParseEvent(absl::string_view text) {
  const auto found = EventNames().find(std::string(text));
  return found == EventNames().end() ? 0 : found->second;
}

bool IsTold(const core::EventRecord& event) {
  // Events that happened elsewhere were told there.
  if (event.actor == core::kImportedActor) return false;
  static constexpr const char* kTypes[] = {"JOB_RUNNING",   "JOB_SUCCEEDED",  "JOB_FAILED",
                                           "JOB_CANCELLED", "ATTEMPT_FAILED", "ATTEMPT_LOST"};
  return std::any_of(std::begin(kTypes), std::end(kTypes),
                     [&event](const char* type) { return event.type == type; });
}

std::optional<Subject> SubjectOf(const core::EventRecord& event, const runtime::Board& board) {
  Subject subject;
  JobId id;
  if (const auto attempt = ParseAttemptName(event.resource); attempt.ok()) {
    id = attempt->job;
    subject.attempt = board.FindAttempt(*attempt);
    if (subject.attempt == nullptr) return std::nullopt;
  } else if (const auto job = ParseJobName(event.resource); job.ok()) {
    id = *job;
  } else {
    return std::nullopt;
  }
  const auto view = board.FindJob(id);
  if (view == nullptr) return std::nullopt;
  subject.job = view->record;
  return subject;
}

std::vector<store::TargetRecord> TargetsOfSpec(const core::JobRecord& job,
                                               const std::vector<store::TargetRecord>& targets) {
  v1::JobSpec spec;
  if (!spec.ParseFromString(job.submission->resolved_spec) || !spec.has_notify()) return {};
  uint32_t events = 0;
  for (const int event : spec.notify().events()) {
    if (event > 0 && event < 32) events |= 1U << (event - 1);
  }
  if (events == 0) events = kDefaultEvents;
  store::TargetRecord target;
  target.user = job.submission->user;
  target.events = events;
  std::vector<store::TargetRecord> found;
  if (!spec.notify().mail().empty()) {
    target.mail = spec.notify().mail();
    found.push_back(target);
  }
  if (!spec.notify().webhook().empty()) {
    target.mail.clear();
    target.webhook = spec.notify().webhook();
    for (const store::TargetRecord& known : targets) {
      if (known.webhook == target.webhook) target.signing_key = known.signing_key;
    }
    found.push_back(target);
  }
  return found;
}

std::vector<store::DeliveryRecord> DeliveriesOf(const core::EventRecord& event,
                                                const Subject& subject,
                                                const std::vector<store::TargetRecord>& targets) {
  std::vector<store::DeliveryRecord> deliveries;
  for (const store::TargetRecord& target : targets) {
    // A target hears of what happens once it is there.
    if (event.time_us < target.create_us) continue;
    const uint32_t bit = BitFor(event, subject, target.events);
    if (bit == 0) continue;
    // An address that both the spec and the owner name gets one message.
    const bool is_there =
        std::any_of(deliveries.begin(), deliveries.end(), [&target](const auto& other) {
          return other.webhook == target.webhook && other.mail == target.mail;
        });
    if (is_there) continue;
    Word word;
    word.delivery = IdOf(event, subject, target);
    word.event = EventText(bit);
    word.time_us = event.time_us;
    word.user = target.user;
    word.job = subject.job;
    word.attempt = subject.attempt == nullptr ? subject.job.attempt : subject.attempt->id.number;
    word.failure =
        subject.attempt == nullptr ? FailureOf(subject.job) : FailureOf(*subject.attempt);
    store::DeliveryRecord delivery;
    delivery.id = word.delivery;
    delivery.user = target.user;
    delivery.target = target.name;
    delivery.webhook = target.webhook;
    delivery.mail = target.mail;
    delivery.event = word.event;
    delivery.job = subject.job.id;
    delivery.message = WebhookBody(word);
    delivery.create_us = event.time_us;
    delivery.next_try_us = 0;
    deliveries.push_back(std::move(delivery));
  }
  return deliveries;
}

}  // namespace trainyard::notify
