// Hands mail to the host's own mail system, by the interface that all of them have: sendmail.
#pragma once

#include <atomic>
#include <string>

#include "absl/time/time.h"
#include "server/notify/webhook.h"

namespace trainyard::notify {

inline constexpr absl::Duration kSendmailTimeout = absl::Seconds(30);

// Runs `sendmail -i -t`, which reads the recipients from the headers of `mail`, without a shell and
// with nothing of this process but its user. A run that takes too long, or is under way once
// `is_stopping`, is killed.
Sent SendMail(const std::string& sendmail, const std::string& mail,
              const std::atomic<bool>& is_stopping);

}  // namespace trainyard::notify
