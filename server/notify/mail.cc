// Runs sendmail, and judges how it ended.
#include "server/notify/mail.h"

#include <sysexits.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/command/command.h"

namespace trainyard::notify {
namespace {

constexpr size_t kComplaintBytesMax = 300;

Sent ResultOf(const CommandResult& result) {
  if (result.exit_code == 0) return {true, false, "sendmail took it"};
  const std::string complaint(absl::StripAsciiWhitespace(
      absl::StrReplaceAll(result.err.substr(0, kComplaintBytesMax), {{"\n", " "}})));
  const int code = result.exit_code;
  const bool is_final = code == EX_USAGE || code == EX_DATAERR || code == EX_NOUSER;
  return {
      false, !is_final,
      absl::StrCat("sendmail exited with code ", code, complaint.empty() ? "" : ": ", complaint)};
}

}  // namespace

Sent SendMail(const std::string& sendmail, const std::string& mail,
              const std::atomic<bool>& is_stopping) {
  if (sendmail.empty()) return {false, false, "this server sends no mail (--sendmail)"};
  const Command command = {
      {sendmail, "-i", "-t"}, {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, mail, kSendmailTimeout};
  const auto result = RunCommand(command, is_stopping);
  if (result.ok()) return ResultOf(*result);
  const bool is_late =
      absl::IsDeadlineExceeded(result.status()) || absl::IsCancelled(result.status());
  return {false, true, is_late ? "sendmail took too long" : std::string(result.status().message())};
}

}  // namespace trainyard::notify
