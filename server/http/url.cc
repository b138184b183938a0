// Accepts little, since our clients write little.
#include "server/http/url.h"

#include <arpa/inet.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace trainyard::http {
namespace {

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

}  // namespace

std::optional<std::string> PercentDecode(absl::string_view text, bool is_query) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && is_query) {
      decoded.push_back(' ');
    } else if (text[i] != '%') {
      decoded.push_back(text[i]);
    } else {
      if (i + 2 >= text.size()) return std::nullopt;
      const auto high = HexDigit(text[i + 1]);
      const auto low = HexDigit(text[i + 2]);
      if (!high.has_value() || !low.has_value()) return std::nullopt;
      decoded.push_back(static_cast<char>(*high * 16 + *low));
      i += 2;
    }
  }
  return decoded;
}

std::optional<std::map<std::string, std::string>> ParseQuery(absl::string_view query) {
  std::map<std::string, std::string> values;
  for (const absl::string_view part : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto name = PercentDecode(pair.first, true);
    const auto value = PercentDecode(pair.second, true);
    if (!name.has_value() || !value.has_value()) return std::nullopt;
    if (!values.emplace(*name, *value).second) return std::nullopt;
  }
  return values;
}

std::optional<int64_t> RangeBegin(absl::string_view range) {
  int64_t begin = 0;
  if (!absl::ConsumePrefix(&range, "bytes=") || !absl::ConsumeSuffix(&range, "-")) {
    return std::nullopt;
  }
  if (!absl::SimpleAtoi(range, &begin) || begin < 0) return std::nullopt;
  return begin;
}

std::string HostOnly(absl::string_view host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port =
      colon != absl::string_view::npos && (bracket == absl::string_view::npos || colon > bracket);
  if (has_port) host = host.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return absl::AsciiStrToLower(host);
}

bool IsIpAddress(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

}  // namespace trainyard::http
