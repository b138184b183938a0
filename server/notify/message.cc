// Writes messages for people and for programs. Texts come from programs of users and may hold any
// bytes, so nothing here trusts them.
#include "server/notify/message.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/base/duration.h"
#include "common/base/ids.h"
#include "common/tls/digest.h"

namespace trainyard::notify {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
// A line of mail has at most 998 bytes, and a chat cuts long texts.
constexpr size_t kFailureBytesMax = 800;
constexpr size_t kMetricsMax = 20;
constexpr size_t kSigningKeyBytes = 32;

std::string TimeText(int64_t time_us) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMicros(time_us), absl::UTCTimeZone());
}

std::string RunTimeText(const core::JobRecord& job) {
  return DurationText(absl::Trunc(absl::Microseconds(job.run_time_us), absl::Seconds(1)));
}

std::string Lower(absl::string_view state) {
  return absl::AsciiStrToLower(state);
}

// Says in one line what has happened.
std::string TitleOf(const Word& word) {
  if (!word.job.has_value()) return "Trainyard: a test message";
  const core::JobRecord& job = *word.job;
  const std::string name = absl::StrCat(job.submission->name, " (", JobName(job.id), ")");
  if (word.event == "start") return absl::StrCat(name, " has started");
  if (word.event == "stuck")
    return absl::StrCat(name, ": a rank of attempt ", word.attempt, " is stuck");
  if (word.event == "failure") return absl::StrCat(name, ": attempt ", word.attempt, " has failed");
  return absl::StrCat(name, " ", Lower(core::job_fsm::Name(job.state)), " after ",
                      RunTimeText(job));
}

std::string FailureLine(const core::Failure& failure) {
  std::string message = failure.message.substr(0, kFailureBytesMax);
  return absl::StrCat(failure.reason, message.empty() ? "" : ": ", message);
}

std::string MetricsLine(const core::JobRecord& job) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : job.metrics.values) {
    if (parts.size() == kMetricsMax) break;
    parts.push_back(absl::StrFormat("%s %.6g", name, value));
  }
  return absl::StrJoin(parts, ", ");
}

// Returns what a person reads, with the title as its first line.
std::string TextOf(const Word& word, const std::string& title) {
  std::vector<std::string> lines = {title};
  if (word.failure.has_value()) lines.push_back(FailureLine(*word.failure));
  if (word.job.has_value()) {
    const core::JobRecord& job = *word.job;
    if (job.progress.step > 0) {
      lines.push_back(absl::StrCat("step ", job.progress.step, ", attempt ", job.attempt, ", ",
                                   RunTimeText(job), " of run time"));
    }
    if (!job.metrics.values.empty()) lines.push_back(MetricsLine(job));
    lines.push_back(absl::StrCat("trainyard show ", job.id.value));
  } else {
    lines.push_back(absl::StrCat("Word of the jobs of ", word.user, " reaches this place."));
  }
  return absl::StrJoin(lines, "\n");
}

Json JobJson(const core::JobRecord& job) {
  Json metrics = Json::object();
  for (const auto& [name, value] : job.metrics.values) {
    if (metrics.size() == kMetricsMax) break;
    metrics[name] = std::isfinite(value) ? Json(value) : Json();
  }
  return Json{{"name", JobName(job.id)},
              {"title", job.submission->name},
              {"user", job.submission->user},
              {"project", job.submission->project},
              {"state", std::string(core::job_fsm::Name(job.state))},
              {"attempt", job.attempt},
              {"step", job.progress.step},
              {"run_time_s", static_cast<double>(job.run_time_us) / 1e6},
              {"metrics", metrics}};
}

// Keeps a text to one line of a header.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return text;
}

// Returns the value of a header: RFC 2047 if it is more than ASCII.
std::string HeaderText(const std::string& text) {
  const std::string line = OneLine(text.substr(0, 200));
  for (const char c : line) {
    if (static_cast<unsigned char>(c) < 0x80) continue;
    // An encoded word has at most 75 characters: 45 bytes become 60.
    std::vector<std::string> words;
    for (size_t at = 0; at < line.size();) {
      size_t end = std::min(line.size(), at + 45);
      while (end < line.size() && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
      if (end <= at) end = std::min(line.size(), at + 45);  // it is no UTF-8
      words.push_back(
          absl::StrCat("=?utf-8?B?", absl::Base64Escape(line.substr(at, end - at)), "?="));
      at = end;
    }
    return absl::StrJoin(words, "\r\n ");
  }
  return line;
}

}  // namespace

std::string NewSigningKey() {
  return absl::BytesToHexString(tls::SecretBytes(kSigningKeyBytes));
}

std::string WebhookBody(const Word& word) {
  const std::string title = TitleOf(word);
  Json body = {{"version", kVersion},
               {"delivery", word.delivery},
               {"event", word.event},
               {"time", TimeText(word.time_us)}};
  if (word.job.has_value()) body["job"] = JobJson(*word.job);
  if (word.failure.has_value()) {
    body["failure"] = {{"attempt", word.attempt},
                       {"reason", word.failure->reason},
                       {"message", word.failure->message.substr(0, kFailureBytesMax)},
                       {"exit_code", word.failure->exit_code}};
  }
  body["title"] = title;
  body["text"] = TextOf(word, title);
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::map<std::string, std::string> WebhookHeaders(absl::string_view delivery,
                                                  absl::string_view event, int64_t time_s,
                                                  absl::string_view body,
                                                  absl::string_view signing_key) {
  std::map<std::string, std::string> headers = {
      {"Content-Type", "application/json"},
      {"X-Trainyard-Delivery", std::string(delivery)},
      {"X-Trainyard-Event", std::string(event)},
      {"X-Trainyard-Timestamp", absl::StrCat(time_s)},
  };
  if (!signing_key.empty()) {
    const std::string digest = tls::HmacSha256(signing_key, absl::StrCat(time_s, ".", body));
    headers["X-Trainyard-Signature"] = absl::StrCat("sha256=", absl::BytesToHexString(digest));
  }
  return headers;
}

std::string MailOf(absl::string_view body, const std::string& to, const std::string& from) {
  const Json json = Json::parse(body.begin(), body.end(), nullptr, /*allow_exceptions=*/false);
  const auto text_of = [&json](const char* key) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  std::string mail;
  if (!from.empty()) absl::StrAppend(&mail, "From: ", OneLine(from), "\n");
  absl::StrAppend(&mail, "To: ", OneLine(to), "\nSubject: [trainyard] ",
                  absl::StrReplaceAll(HeaderText(text_of("title")), {{"\r\n", "\n"}}), "\n");
  absl::StrAppend(&mail, "Message-ID: <", OneLine(text_of("delivery")), "@trainyard>\n");
  absl::StrAppend(&mail, "X-Trainyard-Event: ", OneLine(text_of("event")), "\n");
  // Nobody's holiday answers to it.
  mail +=
      "Auto-Submitted: auto-generated\nMIME-Version: 1.0\n"
      "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n";
  return absl::StrCat(mail, text_of("text"), "\n");
}

}  // namespace trainyard::notify
