// Reads addresses of notifications, and writes messages with names and texts that users chose.
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "server/notify/addresses.h"
#include "server/notify/message.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::notify_texts {
namespace {

// The headers of a mail of ours. Nothing that a user has chosen may add one.
bool IsOurs(absl::string_view line) {
  for (const absl::string_view name :
       {"To: ", "From: ", "Subject: ", "Message-ID: ", "X-Trainyard-Event: ", "Auto-Submitted: ",
        "MIME-Version: ", "Content-Type: ", "Content-Transfer-Encoding: ", " =?utf-8?B?"}) {
    if (absl::StartsWith(line, name)) return true;
  }
  return false;
}

void Run(absl::string_view bytes) {
  const std::string text(bytes);
  const notify::AddressRules rules;
  if (notify::CheckMail(text, rules).ok()) {
    TY_CHECK(!absl::StrContains(text, '\n') && !absl::StrContains(text, ','));
  }
  if (notify::CheckWebhook(text, rules).ok()) TY_CHECK(!notify::HostOf(text).empty());
  (void)notify::ParseHostRule(text);
  (void)notify::ShownAddress(text, "");

  auto submission = std::make_shared<core::Submission>();
  submission->name = text.substr(0, text.size() / 2);
  notify::Word word;
  word.delivery = "d1";
  word.event = "end";
  word.job.emplace();
  word.job->submission = submission;
  word.failure = core::Failure{core::FailureClass::kNone, "REASON", text, 1};
  const std::string mail = notify::MailOf(notify::WebhookBody(word), "anna@lab.example", "");
  const std::string head = mail.substr(0, mail.find("\n\n"));
  for (const absl::string_view line : absl::StrSplit(head, '\n')) TY_CHECK(IsOurs(line));
  (void)notify::MailOf(bytes, text, text);
}

const Registration kTarget({.name = "notify_texts", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::notify_texts
