// Looks into indexes in memory only, since handlers do not block.
#include "server/rpc/private_checks.h"

#include "absl/strings/str_cat.h"
#include "server/notify/addresses.h"

namespace trainyard::rpc {

void CheckSecretsAndNotify(const v1::JobSpec& resolved, const access::Caller& caller,
                           const Services& services, RequestCheck& check) {
  if (services.secrets != nullptr) {
    for (int i = 0; i < resolved.program().secrets_size(); ++i) {
      const std::string& name = resolved.program().secrets(i);
      if (services.secrets->Has(caller.user, name)) continue;
      check.Add(absl::StrCat("spec.program.secrets[", i, "]"),
                std::string(error::SecretNotFound(caller.user, name).message()));
    }
  }
  if (services.courier == nullptr || !resolved.has_notify()) return;
  const v1::NotifySpec& notify = resolved.notify();
  if (!notify.webhook().empty()) {
    const absl::Status may = notify::CheckWebhook(notify.webhook(), services.courier->rules());
    if (!may.ok()) check.Add("spec.notify.webhook", may.message());
  }
  if (!notify.mail().empty()) {
    const absl::Status may = notify::CheckMail(notify.mail(), services.courier->rules());
    if (!may.ok()) check.Add("spec.notify.mail", may.message());
    if (may.ok() && !services.courier->sends_mail()) {
      check.Add("spec.notify.mail", "this server sends no mail (--sendmail)");
    }
  }
}

}  // namespace trainyard::rpc
