// Merges the timelines of ranks into one document of Chrome's trace format.
#include "client/output/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/strings.h"

namespace trainyard::output {
namespace {

using Value = nlohmann::ordered_json;

bool IsFiniteNumber(const Value& event, const char* key) {
  const auto field = event.find(key);
  return field != event.end() && field->is_number() && std::isfinite(field->get<double>());
}

// An event of a trace is a span, or the name of a process or thread.
bool IsEvent(const Value& event) {
  if (!event.is_object() || !event.contains("name") || !event["name"].is_string()) return false;
  const std::string phase =
      event.contains("ph") && event["ph"].is_string() ? event["ph"].get<std::string>() : "";
  if (phase == "M") return true;
  return phase == "X" && IsFiniteNumber(event, "ts") && IsFiniteNumber(event, "dur");
}

}  // namespace

bool Timeline::AddEvent(int rank, absl::string_view line) {
  Value event = Value::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!IsEvent(event)) return false;
  event["pid"] = rank;  // the rank becomes the process id, so that ranks stay apart
  if (event["ph"] == "X") {
    Rank& own = ranks_[rank];
    const double begin = event["ts"].get<double>();
    const Span span = {begin, begin + event["dur"].get<double>()};
    const std::string category =
        event.contains("cat") && event["cat"].is_string() ? event["cat"].get<std::string>() : "";
    if (category == "comm" || category == "wait") own.communication.push_back(span);
    if (category == "wait") own.waits.push_back(span);
    const auto args = event.find("args");
    if (args != event.end() && args->is_object() && args->contains("step") &&
        (*args)["step"].is_number_integer()) {
      steps_.insert((*args)["step"].get<int64_t>());
    }
  }
  absl::StrAppend(&events_, events_.empty() ? "" : ",\n",
                  event.dump(-1, ' ', false, Value::error_handler_t::replace));
  ++event_count_;
  return true;
}

void Timeline::Add(int rank, absl::string_view lines) {
  for (size_t end = lines.find('\n'); end != absl::string_view::npos; end = lines.find('\n')) {
    if (end > 0 && !AddEvent(rank, lines.substr(0, end))) ++skipped_;
    lines.remove_prefix(end + 1);
  }
}

std::string Timeline::Json(const std::map<int, std::string>& names,
                           const std::vector<std::pair<std::string, std::string>>& facts) const {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"otherData\":{";
  for (size_t i = 0; i < facts.size(); ++i) {
    absl::StrAppend(&out, i > 0 ? "," : "", JsonQuote(facts[i].first), ":",
                    JsonQuote(facts[i].second));
  }
  absl::StrAppend(&out, "},\"traceEvents\":[\n");
  std::vector<std::string> heads;
  for (const auto& [rank, own] : ranks_) {
    const auto name = names.find(rank);
    if (name == names.end()) continue;
    heads.push_back(absl::StrCat("{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":", rank,
                                 ",\"args\":{\"name\":", JsonQuote(name->second), "}}"));
    heads.push_back(absl::StrCat("{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":", rank,
                                 ",\"args\":{\"sort_index\":", rank, "}}"));
  }
  // If there are several names, the last one counts.
  absl::StrAppend(&out, events_);
  for (const std::string& head : heads) absl::StrAppend(&out, ",\n", head);
  absl::StrAppend(&out, "\n]}\n");
  return out;
}

double Timeline::LengthOf(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  double length = 0;
  double reached = -std::numeric_limits<double>::infinity();
  for (const Span& span : spans) {
    const double begin = std::max(span.begin, reached);
    if (span.end <= begin) continue;
    length += span.end - begin;
    reached = span.end;
  }
  return length;
}

std::optional<double> Timeline::HiddenFraction() const {
  double total = 0;
  double exposed = 0;
  for (const auto& [rank, own] : ranks_) {
    total += LengthOf(own.communication);
    exposed += LengthOf(own.waits);
  }
  if (total <= 0) return std::nullopt;
  return 1 - exposed / total;
}

}  // namespace trainyard::output
