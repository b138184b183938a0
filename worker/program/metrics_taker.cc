// Stops reading while the points cannot be written, so that what is not taken yet stays in the
// program's files.
#include "worker/program/metrics_taker.h"

#include <sys/stat.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"

namespace trainyard::program {
namespace {

// A program that writes without end must not keep its runner from other duties.
constexpr int kChunksPerLook = 16;
// New event files are looked for at every tenth look, since the folder may be large.
constexpr int kLooksPerSearch = 10;

}  // namespace

void MetricsTaker::TakeLines(run_dir::TailEnd end, int64_t now_us) {
  NoteFile();
  const bool is_last = end == run_dir::TailEnd::kFinished;
  int64_t left = is_last ? BytesLeft() : kChunksPerLook * MetricsTail::kChunkBytes;
  while (left > 0 && points_.Flush()) {
    const auto chunk = tail_.Read(end);
    if (!chunk.ok() || chunk->empty()) return;
    // A chunk was taken from the file as a whole. Only what came after the program is left out.
    absl::string_view lines = *chunk;
    if (is_last) lines = lines.substr(0, static_cast<size_t>(left));
    left -= static_cast<int64_t>(lines.size());
    taken_bytes_ += static_cast<int64_t>(chunk->size());
    std::string points;
    intake_.Take(lines, now_us, points);
    points_.Add(points);
  }
}

void MetricsTaker::NoteFile() {
  struct stat named {};
  const ino_t now = stat(path_.c_str(), &named) == 0 ? named.st_ino : 0;
  if (now == file_) return;
  if (file_ != 0 || taken_bytes_ > 0) is_one_file_ = false;
  file_ = now;
}

int64_t MetricsTaker::BytesLeft() const {
  const int64_t size = FileSize(path_).value_or(0);
  if (is_one_file_ && size >= taken_bytes_) return size - taken_bytes_;
  // It is not known how much was taken of this file, nor how much is left of the one before.
  return size + kChunksPerLook * MetricsTail::kChunkBytes;
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
  // It tells of a file that was replaced or cut off, among others.
  const std::vector<std::string> troubles = tail_.TakeTroubles();
  if (!troubles.empty()) is_one_file_ = false;
  take(troubles);
  if (events_.has_value()) take(events_->TakeTroubles());
  take(points_.TakeTroubles());
  if (is_last && !is_written)
    said.push_back("the last metrics are lost, because they cannot be written");
  return said;
}

}  // namespace trainyard::program
