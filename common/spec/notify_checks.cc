// Makes the checks between the parts of a list.
#include "common/spec/notify_checks.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace trainyard::spec {
namespace {

constexpr size_t kSecretNameBytesMax = 63;

bool IsNameSign(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
}

}  // namespace

bool IsSecretName(absl::string_view name) {
  if (name.empty() || name.size() > kSecretNameBytesMax) return false;
  const bool begins_well =
      absl::ascii_isalpha(static_cast<unsigned char>(name[0])) || name[0] == '_';
  return begins_well && std::all_of(name.begin(), name.end(), IsNameSign);
}

void CheckSecrets(const v1::ProgramSpec& program, std::vector<FieldViolation>& violations) {
  if (program.secrets_size() > kSecretsMax) {
    violations.push_back({"spec.program.secrets", absl::StrCat(program.secrets_size(),
                                                               " names are not accepted; expected "
                                                               "at most ",
                                                               kSecretsMax)});
    return;
  }
  std::set<std::string> names;
  for (int i = 0; i < program.secrets_size(); ++i) {
    if (names.insert(program.secrets(i)).second) continue;
    violations.push_back({absl::StrCat("spec.program.secrets[", i, "]"),
                          absl::StrCat("'", program.secrets(i), "' is there twice")});
  }
}

void CheckNotify(const v1::JobSpec& spec, std::vector<FieldViolation>& violations) {
  if (!spec.has_notify()) return;
  const v1::NotifySpec& notify = spec.notify();
  if (notify.mail().empty() && notify.webhook().empty()) {
    violations.push_back({"spec.notify", "says to nobody; give mail or webhook"});
  }
  std::set<int> events;
  for (int i = 0; i < notify.events_size(); ++i) {
    const std::string field = absl::StrCat("spec.notify.events[", i, "]");
    if (!v1::NotifyEvent_IsValid(notify.events(i)) ||
        notify.events(i) == v1::NOTIFY_EVENT_UNSPECIFIED) {
      violations.push_back({field, "is no event; expected start, end, failure or stuck"});
    } else if (!events.insert(notify.events(i)).second) {
      violations.push_back({field, "is there twice"});
    }
  }
}

}  // namespace trainyard::spec
