// Makes entries of the audit log from callers, calls and decisions.
#include "server/rpc/decisions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/ids.h"
#include "common/base/strings.h"

namespace trainyard::rpc {
namespace {

// The audit log has at most as much of the names of a request.
constexpr size_t kAboutBytesMax = 256;

}  // namespace

void WriteDecision(const access::Rule& rule, const access::Caller& caller, Services& services,
                   absl::string_view about, const absl::Status& decision) {
  // Guesses that come too fast are not even counted. Nor are calls without a token, with which any
  // stranger could fill the disk.
  const std::string refusal = ErrorReason(decision);
  if (refusal == "SIGN_IN_DELAYED" || refusal == "NOT_SIGNED_IN") return;
  access::AuditRecord entry;
  entry.address = caller.address;
  entry.user = caller.worker.empty() ? caller.user : WorkerName(caller.worker);
  entry.real_user = caller.real_user;
  entry.rpc = std::string(rule.rpc);
  entry.resource = PlainText(std::string(about), kAboutBytesMax);
  entry.allowed = decision.ok();
  entry.reason = std::string(decision.message());
  services.audit.Add(std::move(entry));
}

Decisions::Decisions(const access::Rule& rule, const access::Caller& caller, Services& services,
                     std::vector<std::string> about, bool is_trial)
    : rule_(rule),
      caller_(caller),
      services_(services),
      about_(std::move(about)),
      is_trial_(is_trial) {}

Decisions::~Decisions() {
  if (!is_written_) Write();
}

absl::Status Decisions::Take(absl::Status decision) {
  return Take(absl::StrJoin(about_, " "), std::move(decision));
}

absl::Status Decisions::Take(absl::string_view about, absl::Status decision) {
  Add(about, decision, decision.ok() ? allowed_ : refused_);
  return decision;
}

void Decisions::Add(absl::string_view about, absl::Status decision, std::optional<Entry>& entry) {
  if (!entry.has_value()) {
    entry = Entry{std::string(about), std::move(decision)};
  } else if (entry->about != about && entry->about.size() <= kAboutBytesMax) {
    absl::StrAppend(&entry->about, " ", about);
  }
}

void Decisions::Write() {
  is_written_ = true;
  const bool acts_for_other = !caller_.real_user.empty();
  if (!allowed_.has_value() && !refused_.has_value() && acts_for_other) {
    allowed_ = Entry{absl::StrJoin(about_, " "), absl::OkStatus()};
  }
  if (allowed_.has_value() && rule_.is_decided_by_handler && (acts_for_other || !is_trial_)) {
    WriteDecision(rule_, caller_, services_, allowed_->about, allowed_->decision);
  }
  if (refused_.has_value()) {
    WriteDecision(rule_, caller_, services_, refused_->about, refused_->decision);
  }
}

}  // namespace trainyard::rpc
