// Stops reading while the points cannot be written, so that what is not taken yet stays in the
// program's files.
#include "worker/program/metrics_taker.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace trainyard::program {
namespace {

// A program that writes without end must not keep its runner from other duties.
constexpr int kChunksPerLook = 16;
// New event files are looked for at every tenth look, since the folder may be large.
constexpr int kLooksPerSearch = 10;

}  // namespace

void MetricsTaker::TakeLines(run_dir::TailEnd end, int64_t now_us) {
  const bool is_last = end == run_dir::TailEnd::kFinished;
  for (int i = 0; (i < kChunksPerLook || is_last) && points_.Flush(); ++i) {
    const auto chunk = tail_.Read(end);
    if (!chunk.ok() || chunk->empty()) return;
    std::string points;
    intake_.Take(*chunk, now_us, points);
    points_.Add(points);
  }
}

void MetricsTaker::TakeEvents(bool is_last) {
  if (!events_.has_value() || !points_.Flush()) return;
  std::vector<Scalar> scalars;
  events_->Read(is_last || looks_++ % kLooksPerSearch == 0, scalars);
  std::string points;
  for (const Scalar& scalar : scalars) {
    const bool is_time = scalar.wall_time >= 0 && scalar.wall_time < 1e11;
    const auto time_us = static_cast<int64_t>(is_time ? scalar.wall_time * 1e6 : 0);
    intake_.Add({scalar.step, scalar.tag, scalar.value, time_us}, points);
  }
  points_.Add(points);
}

std::vector<std::string> MetricsTaker::Take(run_dir::TailEnd end, int64_t now_us) {
  const bool is_last = end == run_dir::TailEnd::kFinished;
  TakeLines(end, now_us);
  TakeEvents(is_last);
  const bool is_written = points_.Flush();
  std::vector<std::string> said;
  for (const std::string& mistake : intake_.TakeMistakes()) {
    said.push_back(
        absl::StrCat(mistake, ", and is left out; further lines of that kind are left out too"));
  }
  const auto take = [&said](std::vector<std::string> more) {
    said.insert(said.end(), more.begin(), more.end());
  };
  take(tail_.TakeTroubles());
  if (events_.has_value()) take(events_->TakeTroubles());
  take(points_.TakeTroubles());
  if (is_last && !is_written)
    said.push_back("the last metrics are lost, because they cannot be written");
  return said;
}

}  // namespace trainyard::program
