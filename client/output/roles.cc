// Derives the texts from the names of the enum, ROLE_VIEWER and so on.
#include "client/output/roles.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace trainyard::output {
namespace {

constexpr char kPrefix[] = "ROLE_";

}  // namespace

std::string RoleText(v1::Role role) {
  const std::string name = v1::Role_Name(role);
  return absl::AsciiStrToLower(absl::StripPrefix(name, kPrefix));
}

v1::Role ParseRole(const std::string& text) {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  return v1::Role_Parse(absl::StrCat(kPrefix, absl::AsciiStrToUpper(text)), &role)
             ? role
             : v1::ROLE_UNSPECIFIED;
}

std::vector<std::string> RoleTexts() {
  std::vector<std::string> texts;
  for (int role = v1::ROLE_NONE; role <= v1::ROLE_ADMIN; ++role) {
    texts.push_back(RoleText(static_cast<v1::Role>(role)));
  }
  return texts;
}

}  // namespace trainyard::output
