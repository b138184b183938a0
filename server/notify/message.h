// Writes the messages: JSON for webhooks, and mail. docs/notifications.md describes both.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/core/lifecycle/records.h"

namespace trainyard::notify {

// Holds all that a message tells.
struct Word {
  std::string delivery;                     // the id
  std::string event;                        // "start", "end", "failure", "stuck" or "test"
  int64_t time_us = 0;                      // of the event
  std::string user;                         // whose job it is
  std::optional<core::JobRecord> job = {};  // unset for a test
  int32_t attempt = 0;                      // of which is told
  std::optional<core::Failure> failure = {};
};

// Returns the body of a webhook: one JSON object.
std::string WebhookBody(const Word& word);

// Returns a new key with which messages to a target are signed: text.
std::string NewSigningKey();

// Returns the headers that a receiver needs to check a body. The signature is the HMAC-SHA256,
// under the key of the target, of the time in seconds, a dot, and the body.
std::map<std::string, std::string> WebhookHeaders(absl::string_view delivery,
                                                  absl::string_view event, int64_t time_s,
                                                  absl::string_view body,
                                                  absl::string_view signing_key);

// Returns a mail with its headers, made of the body of a webhook. No text in it ends a header.
std::string MailOf(absl::string_view body, const std::string& to, const std::string& from);

}  // namespace trainyard::notify
