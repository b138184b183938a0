// Reads URLs with libcurl, as the one who connects later does, so that both mean the same host.
#include "server/notify/addresses.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"

namespace trainyard::notify {
namespace {

constexpr size_t kUrlBytesMax = 2048;
constexpr size_t kMailBytesMax = 254;

std::string PartOf(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return "";
  std::string copy = text;
  curl_free(text);
  return copy;
}

struct Url {
  std::string scheme;
  std::string host;  // in lower case, without the brackets of IPv6
  std::string port;
  bool has_user = false;
};

bool ReadUrl(const std::string& text, Url& url) {
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (!is_plain || text.size() > kUrlBytesMax) return false;
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), curl_url_cleanup);
  if (curl_url_set(parsed.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return false;
  url.scheme = PartOf(parsed.get(), CURLUPART_SCHEME);
  url.host = absl::AsciiStrToLower(PartOf(parsed.get(), CURLUPART_HOST));
  if (absl::StartsWith(url.host, "[") && absl::EndsWith(url.host, "]")) {
    url.host = url.host.substr(1, url.host.size() - 2);
  }
  // A name with the root's dot is the same name.
  if (absl::EndsWith(url.host, ".")) url.host.pop_back();
  url.port = PartOf(parsed.get(), CURLUPART_PORT);
  url.has_user = !PartOf(parsed.get(), CURLUPART_USER).empty();
  return !url.host.empty();
}

// Reads a host that is an address itself.
bool ReadLiteral(const std::string& host, sockaddr_storage& address) {
  address = {};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    return true;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    return true;
  }
  return false;
}

std::string WhyForbiddenV4(uint32_t address, bool is_named) {
  if (address >> 16 == 0xa9fe) return "it is an address of one link, where clouds tell secrets";
  if (address == 0x646464c8 || address == 0xa83f8110) return "a cloud tells secrets there";
  if (address >> 24 == 0 || address >> 28 >= 0xe) return "it is the address of no single machine";
  if (address >> 24 == 127 && !is_named) return "it is the server's own host";
  return "";
}

std::string WhyForbiddenV6(const unsigned char* bytes, bool is_named) {
  constexpr unsigned char kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  constexpr unsigned char kTranslated[12] = {0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0};
  constexpr unsigned char kLoopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  constexpr unsigned char kNone[12] = {};
  constexpr unsigned char kCloud[4] = {0xfd, 0x00, 0x0e, 0xc2};
  if (std::memcmp(bytes, kLoopback, 16) == 0) return is_named ? "" : "it is the server's own host";
  for (const unsigned char* prefix : {kMapped, kTranslated, kNone}) {
    if (std::memcmp(bytes, prefix, 12) != 0) continue;
    uint32_t v4 = 0;
    std::memcpy(&v4, bytes + 12, 4);
    return WhyForbiddenV4(ntohl(v4), is_named);
  }
  if (bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80) return "it is an address of one link";
  if (bytes[0] == 0xff) return "it is the address of no single machine";
  if (std::memcmp(bytes, kCloud, 4) == 0) return "a cloud tells secrets there";
  return "";
}

// Returns true if a network interface of this host has the address.
bool IsOwnAddress(const sockaddr& address) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> all(first, freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != address.sa_family) continue;
    const auto is_same = [&](auto type, auto member) {
      using Type = decltype(type);
      const auto& theirs = reinterpret_cast<const Type&>(address).*member;
      const auto& ours = reinterpret_cast<const Type&>(*entry->ifa_addr).*member;
      return std::memcmp(&theirs, &ours, sizeof theirs) == 0;
    };
    const bool is_own = address.sa_family == AF_INET
                            ? is_same(sockaddr_in{}, &sockaddr_in::sin_addr)
                            : is_same(sockaddr_in6{}, &sockaddr_in6::sin6_addr);
    if (is_own) return true;
  }
  return false;
}

}  // namespace

bool HostRule::Names(absl::string_view host) const {
  return std::any_of(hosts.begin(), hosts.end(), [&host](const std::string& name) {
    return absl::StartsWith(name, ".") ? absl::EndsWith(host, name) : host == name;
  });
}

absl::StatusOr<HostRule> ParseHostRule(absl::string_view text) {
  HostRule rule;
  if (text == "on") return rule;
  rule.is_on = text != "off";
  if (!rule.is_on) return rule;
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    const bool is_name = std::all_of(name.begin(), name.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(".-_:", c);
    });
    if (name.empty() || !is_name) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text,
                       "' is no rule; expected on, off, or names of hosts with commas, "
                       "such as chat.lab.example,.slack.com"));
    }
    rule.hosts.push_back(absl::AsciiStrToLower(name));
  }
  return rule;
}

std::string WhyForbidden(const sockaddr& address, absl::string_view host, const HostRule& rule) {
  const bool is_named = rule.Names(host);
  std::string why = "it is no address of IP";
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    why = WhyForbiddenV4(ntohl(v4.sin_addr.s_addr), is_named);
  } else if (address.sa_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    why = WhyForbiddenV6(v6.sin6_addr.s6_addr, is_named);
  }
  if (why.empty() && !is_named && IsOwnAddress(address)) why = "it is the server's own host";
  return why;
}

absl::Status CheckWebhook(const std::string& url, const AddressRules& rules) {
  Url parsed;
  if (!ReadUrl(url, parsed) || (parsed.scheme != "http" && parsed.scheme != "https")) {
    return absl::InvalidArgumentError(
        "is no URL of http or https, such as https://chat.lab.example/hooks/7");
  }
  if (parsed.has_user) {
    return absl::InvalidArgumentError(
        "has a user and a password, which are not sent; a webhook has "
        "its key in the path, or checks the signature");
  }
  if (!rules.webhooks.is_on) return error::NotifyForbidden(parsed.host, "webhooks are off");
  if (!rules.webhooks.Allows(parsed.host)) {
    return error::NotifyForbidden(parsed.host, "the host is none of those that are allowed");
  }
  sockaddr_storage literal{};
  std::string why;
  if (ReadLiteral(parsed.host, literal)) {
    why = WhyForbidden(reinterpret_cast<const sockaddr&>(literal), parsed.host, rules.webhooks);
  } else if (parsed.host == "localhost" && !rules.webhooks.Names(parsed.host)) {
    why = "it is the server's own host";
  }
  return why.empty() ? absl::OkStatus() : error::NotifyForbidden(parsed.host, why);
}

absl::Status CheckMail(const std::string& address, const AddressRules& rules) {
  const std::vector<std::string> parts = absl::StrSplit(address, '@');
  const auto consists_of = [](const std::string& text, absl::string_view signs) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [signs](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(signs, c);
    });
  };
  // A '-' at the beginning would be taken for a flag by other programs. Signs by which mail servers
  // route ('%', '!'), run programs ('|') or write files ('/') are refused, though they are legal.
  if (address.size() > kMailBytesMax || parts.size() != 2 || address[0] == '-' ||
      !consists_of(parts[0], "#&'*+-=?^_{}~.") || !consists_of(parts[1], "-.")) {
    return absl::InvalidArgumentError("is no mail address, such as anna@lab.example");
  }
  const std::string domain = absl::AsciiStrToLower(parts[1]);
  if (!rules.mail.is_on) return error::NotifyForbidden(domain, "mail is off");
  if (!rules.mail.Allows(domain)) {
    return error::NotifyForbidden(domain, "the domain is none of those that are allowed");
  }
  return absl::OkStatus();
}

std::string HostOf(const std::string& url) {
  Url parsed;
  return ReadUrl(url, parsed) ? parsed.host : "";
}

std::string ShownAddress(const std::string& webhook, const std::string& mail) {
  if (webhook.empty()) return mail;
  Url parsed;
  if (!ReadUrl(webhook, parsed)) return "";
  const std::string host =
      absl::StrContains(parsed.host, ':') ? absl::StrCat("[", parsed.host, "]") : parsed.host;
  return absl::StrCat(parsed.scheme, "://", host, parsed.port.empty() ? "" : ":", parsed.port,
                      "/...");
}

}  // namespace trainyard::notify

namespace trainyard::error {

absl::Status NotifyForbidden(absl::string_view address, absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, kNotifyForbidden,
                   absl::StrCat("this server sends nothing to '", address, "': ", why,
                                "; its administrator decides that with --notify_webhooks and "
                                "--notify_mail"));
}

}  // namespace trainyard::error
