// Collects the events of a step as lines and appends them when it ends. If something cannot be
// written, or would make the file too large, the timeline ends, but not the training.
#include "worker/trainer/run/trace.h"

#include <fcntl.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace trainyard::trainer {
namespace {

using nlohmann::ordered_json;

// These steps after a start are recorded. The first one is not, since it compiles.
constexpr int64_t kFirstTraced = 2;
constexpr int64_t kLastTraced = 4;

std::string Line(const ordered_json& event) {
  return event.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

const char* Category(Trace::Lane lane) {
  switch (lane) {
    case Trace::Lane::kCompute:
      return "compute";
    case Trace::Lane::kCommunication:
      return "comm";
    case Trace::Lane::kData:
      return "data";
    case Trace::Lane::kWait:
      return "wait";
  }
  return "";
}

}  // namespace

Trace::Trace(const run_dir::RunDir& dir, int rank, std::string device, int64_t first_step,
             Clock& clock)
    : dir_(dir), rank_(rank), device_(std::move(device)), first_step_(first_step), clock_(clock) {}

bool Trace::IsWanted(int64_t step) const {
  const int64_t since_start = step - first_step_;
  return (since_start >= kFirstTraced && since_start <= kLastTraced) || step % kTraceEvery == 0;
}

void Trace::BeginStep(int64_t step) {
  is_on_ = IsWanted(step) && !is_off_ && Open();
  if (!is_on_) return;
  step_ = step;
  // This is read each time, since the wall clock may have been set in the meantime.
  to_wall_clock_ = (clock_.Now() - absl::UnixEpoch()) - clock_.Uptime();
}

void Trace::Add(Lane lane, absl::string_view name, absl::Duration begin, absl::Duration end) {
  if (is_on_) AddLine(step_, lane, name, begin, end);
}

void Trace::AddLate(int64_t step, Lane lane, absl::string_view name, absl::Duration begin,
                    absl::Duration end) {
  if (IsWanted(step) && !is_off_ && file_.get() >= 0) AddLine(step, lane, name, begin, end);
}

void Trace::AddLine(int64_t step, Lane lane, absl::string_view name, absl::Duration begin,
                    absl::Duration end) {
  lines_ += Line({{"name", std::string(name)},
                  {"cat", Category(lane)},
                  {"ph", "X"},
                  {"ts", absl::ToInt64Microseconds(begin + to_wall_clock_)},
                  {"dur", absl::ToInt64Microseconds(end - begin)},
                  {"pid", rank_},
                  {"tid", lane == Lane::kWait ? 0 : static_cast<int>(lane)},
                  {"args", {{"step", step}}}});
}

void Trace::EndStep() {
  is_on_ = false;
  if (lines_.empty()) return;
  const auto size = static_cast<int64_t>(lines_.size());
  absl::Status status;
  if (bytes_ + size > kTraceFileMax) {
    is_off_ = true;
  } else {
    status = WriteFully(file_.get(), lines_, dir_.TracePath(rank_));
    bytes_ += size;
  }
  if (!status.ok()) {
    is_off_ = true;
    LogWarning("no more timelines are recorded", {{"error", std::string(status.message())}});
  }
  lines_.clear();
}

// Writes the names that the viewer shows for process and threads.
void Trace::AddNames() {
  lines_ += Line({{"name", "process_name"},
                  {"ph", "M"},
                  {"pid", rank_},
                  {"args", {{"name", absl::StrCat("rank ", rank_, " (", device_, ")")}}}});
  constexpr const char* kLanes[] = {"compute", "communication", "data"};
  for (int lane = 0; lane < 3; ++lane) {
    lines_ += Line({{"name", "thread_name"},
                    {"ph", "M"},
                    {"pid", rank_},
                    {"tid", lane},
                    {"args", {{"name", kLanes[lane]}}}});
  }
}

bool Trace::Open() {
  if (file_.get() >= 0) return true;
  const std::string path = dir_.TracePath(rank_);
  absl::StatusOr<UniqueFd> file = OpenFile(path, O_WRONLY | O_CREAT | O_APPEND);
  const absl::StatusOr<int64_t> size = file.ok() ? FileSize(path) : file.status();
  if (!size.ok()) {
    is_off_ = true;
    LogWarning("no timeline is recorded", {{"error", std::string(size.status().message())}});
    return false;
  }
  file_ = *std::move(file);
  bytes_ = *size;
  AddNames();
  return true;
}

Trace::Span::Span(Trace& trace, Lane lane, std::string name)
    : trace_(trace), lane_(lane), name_(std::move(name)) {
  if (trace_.is_on()) begin_ = trace_.clock_.Uptime();
}

Trace::Span::~Span() {
  if (trace_.is_on()) trace_.Add(lane_, name_, begin_, trace_.clock_.Uptime());
}

}  // namespace trainyard::trainer
