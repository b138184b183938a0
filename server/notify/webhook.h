// Posts messages to webhooks.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "server/notify/addresses.h"

namespace trainyard::notify {

// The end of one try.
struct Sent {
  bool is_delivered = false;
  bool may_pass = false;  // it is worth another try
  std::string result;     // for people; nothing of what the receiver has answered but its number
};

// A receiver that takes longer is slow, and is asked again later.
inline constexpr absl::Duration kWebhookTimeout = absl::Seconds(10);
// The answer is not read any further.
inline constexpr size_t kAnswerBytesMax = 16 * 1024;

// Posts a body. It follows no redirects, uses no proxy, and connects to no forbidden address,
// whatever the name of the host resolves to. It returns early once `is_stopping`.
Sent PostWebhook(const std::string& url, const std::map<std::string, std::string>& headers,
                 const std::string& body, const AddressRules& rules,
                 const std::atomic<bool>& is_stopping);

}  // namespace trainyard::notify
