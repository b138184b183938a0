// Looks on the board who has which code.
#include "server/rpc/code_use.h"

#include "absl/strings/str_cat.h"
#include "common/base/code_errors.h"
#include "common/base/status_macros.h"
#include "common/tls/digest.h"
#include "server/codec/submission.h"
#include "server/rpc/limits.h"

namespace trainyard::rpc {

bool MayUseCode(const access::Caller& caller, Services& services, const std::string& digest) {
  const auto sees = [&](const std::string& user, const std::string& project) {
    return services.directory.MaySee(caller, user, project);
  };
  const bool may = services.code.IsHeld(caller.user, digest) ||
                   services.board.IsCodeUsed(digest, sees) ||
                   (services.specs != nullptr &&
                    services.specs->IsCodeUsed(digest, [&](const v1::SavedSpec& saved) {
                      return sees(saved.user(), saved.project());
                    }));
  return may && services.code.Hold(caller.user, digest);
}

absl::Status TakeCode(const v1::JobSpec& resolved, const v1::CodeOrigin& origin, bool is_trial,
                      const access::Caller& caller, Services& services, RequestCheck& check,
                      core::Submission& submission) {
  const std::string& code = resolved.program().code();
  if (code.empty()) return absl::OkStatus();
  if (!is_trial && !tls::Sha256Digits(code).ok()) {
    check.Add("spec.program.code",
              absl::StrCat("'", code.substr(0, 100),
                           "' is no archive; expected sha256: and 64 hex digits. The client of "
                           "this version makes an archive of the folder and sends it"));
  }
  check.MaxBytes("options.code_origin.commit", origin.commit(), kOriginBytesMax);
  check.MaxBytes("options.code_origin.branch", origin.branch(), kOriginBytesMax);
  check.MaxBytes("options.code_origin.remote", origin.remote(), kOriginBytesMax);
  const std::string& diff = origin.diff_digest();
  if (!diff.empty() && !tls::Sha256Digits(diff).ok()) {
    check.Add("options.code_origin.diff_digest", "is no digest");
  }
  if (!check.ok()) return absl::OkStatus();
  codec::TakeCodeOrigin(origin, submission);
  if (is_trial) return absl::OkStatus();
  for (const std::string& digest : {code, diff}) {
    if (digest.empty() || MayUseCode(caller, services, digest)) continue;
    return error::CodeNotFound(
        absl::StrCat("there is no code ", digest,
                     " that you may use; submit its folder (program.code: .), or "
                     "clone a job that has it"));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::rpc
