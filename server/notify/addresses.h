// Says to which addresses this server sends word. Users choose the addresses, and the server sends
// from its own place in the network, so it must not become their way to what only it can reach.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::notify {

// A rule of the administrator: all hosts, none, or these. ".lab.example" stands for all names
// below.
struct HostRule {
  bool is_on = true;
  std::vector<std::string> hosts = {};  // in lower case; empty means all

  bool Names(absl::string_view host) const;
  bool Allows(absl::string_view host) const { return is_on && (hosts.empty() || Names(host)); }
};

// Reads "on", "off", or names with commas between them.
absl::StatusOr<HostRule> ParseHostRule(absl::string_view text);

struct AddressRules {
  HostRule webhooks;  // the hosts of their URLs
  HostRule mail;      // the domains of addresses
};

// Returns OK if messages may be posted to the URL. Returns INVALID_ARGUMENT for what is no URL of
// http or https, and FAILED_PRECONDITION (NOTIFY_FORBIDDEN) for one that is forbidden.
absl::Status CheckWebhook(const std::string& url, const AddressRules& rules);
// Does the same for an address of mail, which may hold nothing that a header could misread.
absl::Status CheckMail(const std::string& address, const AddressRules& rules);

// Returns why no message is sent to a machine with this address, or "" if it may be. Addresses of
// one link are always forbidden, since clouds tell secrets there, and the server's own host is,
// unless the administrator has named `host` itself.
std::string WhyForbidden(const sockaddr& address, absl::string_view host, const HostRule& rule);

// Returns the host of a URL in lower case, or "".
std::string HostOf(const std::string& url);
// Returns an address as it may be shown: the path of a URL often holds a key.
std::string ShownAddress(const std::string& webhook, const std::string& mail);

}  // namespace trainyard::notify

namespace trainyard::error {

// NOTIFY_FORBIDDEN: this server sends nothing there; its administrator decides that with
// --notify_webhooks and --notify_mail.
inline constexpr char kNotifyForbidden[] = "NOTIFY_FORBIDDEN";
absl::Status NotifyForbidden(absl::string_view address, absl::string_view why);

}  // namespace trainyard::error
