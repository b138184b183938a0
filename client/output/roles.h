// Names the roles of users as people write them.
#pragma once

#include <string>
#include <vector>

#include "trainyard/v1/access.pb.h"

namespace trainyard::output {

// Returns "viewer" and so on.
std::string RoleText(v1::Role role);
// Returns ROLE_UNSPECIFIED if the text is no role.
v1::Role ParseRole(const std::string& text);
// Returns the texts of all roles, from the least to the greatest.
std::vector<std::string> RoleTexts();

}  // namespace trainyard::output
