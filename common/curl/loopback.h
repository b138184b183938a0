// Tells the addresses of this host from others, which a proxy may lead to.
#pragma once

#include "absl/strings/string_view.h"

namespace trainyard::curl {

// Returns true for an http or https URL of this host by its name or number. Whatever is unusual,
// as a user before the host, is not one.
bool IsLoopbackUrl(absl::string_view url);

}  // namespace trainyard::curl
