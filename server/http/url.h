// Reads the parts of addresses of HTTP.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::http {

// Replaces %41 by what it stands for, and '+' by a blank if `is_query`. Returns nothing if a '%' is
// not followed by two hexadecimal digits.
std::optional<std::string> PercentDecode(absl::string_view text, bool is_query);

// Reads "message=%7B%7D&encoding=json". Returns nothing for a text that cannot be decoded, or that
// has a name twice.
std::optional<std::map<std::string, std::string>> ParseQuery(absl::string_view query);

// Reads the first byte of a header "Range: bytes=1000-", the only form that is served. Returns
// nothing for others, which are then answered as if there were no such header.
std::optional<int64_t> RangeBegin(absl::string_view range);

// Returns the host of a header "Host: lab.example:7070" in lower case, without its port and without
// the brackets of IPv6.
std::string HostOnly(absl::string_view host);
// Returns true if the host is an address of IPv4 or IPv6.
bool IsIpAddress(const std::string& host);

}  // namespace trainyard::http
