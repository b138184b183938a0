// Buffers metrics, so that the disk sees few writes however short the steps are.
#include "worker/trainer/run/reporter.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/errors.h"
#include "common/base/full_disk.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/run_dir/metrics.h"
#include "worker/run_dir/tail.h"

namespace trainyard::trainer {
namespace {

using run_dir::Progress;

// Readers see a metric at most this late, and the disk sees five writes a second.
constexpr absl::Duration kFlushInterval = absl::Milliseconds(200);
constexpr absl::Duration kProgressInterval = absl::Seconds(1);
// The promise of a rank that trains and does not know yet how long a step takes.
constexpr absl::Duration kFirstSilence = absl::Minutes(2);
// The rank may load a large data set, wait for other ranks to evaluate, or write the last
// checkpoint to a slow disk. Nothing shows beforehand how long that takes.
constexpr absl::Duration kPhaseSilence = absl::Minutes(30);
// The process has nothing left to do except to release its memory and its devices.
constexpr absl::Duration kFinishedSilence = absl::Minutes(1);
// A promise that is shorter or longer than the last one by these factors is written at once.
constexpr double kMuchShorter = 0.5;
constexpr double kMuchLonger = 1.2;
// The first lines about the training come soon, and later ones rarely, so that the log of a week
// stays short.
constexpr absl::Duration kLogPauseMin = absl::Seconds(5);
constexpr absl::Duration kLogPauseMax = absl::Minutes(1);
// When a full disk has held back this much, further metrics are lost.
constexpr size_t kMaxBufferBytes = 16 << 20;

// Returns the resident memory of this process, or 0 if /proc cannot tell.
int64_t ResidentBytes() {
  const auto text = ReadFile("/proc/self/statm");
  if (!text.ok()) return 0;
  const std::vector<std::string> fields = absl::StrSplit(*text, ' ');
  int64_t pages = 0;
  if (fields.size() < 2 || !absl::SimpleAtoi(fields[1], &pages)) return 0;
  return pages * sysconf(_SC_PAGESIZE);
}

// Returns where the last whole line of the file ends.
absl::StatusOr<int64_t> EndOfWholeLines(const std::string& path) {
  constexpr int64_t kBlock = 1 << 20;
  int64_t end = 0;
  while (true) {
    TY_ASSIGN_OR_RETURN(const run_dir::LineChunk chunk, run_dir::ReadWholeLines(path, end, kBlock));
    if (chunk.text.empty()) return end;
    end = chunk.next_offset;
  }
}

}  // namespace

Reporter::Reporter(run_dir::RunDir dir, int rank, UniqueFd metrics, Progress progress, Clock& clock)
    : dir_(std::move(dir)),
      rank_(rank),
      metrics_(std::move(metrics)),
      progress_(std::move(progress)),
      clock_(&clock),
      running_silence_(kFirstSilence),
      silence_(kPhaseSilence) {}

absl::StatusOr<Reporter> Reporter::Open(const run_dir::RunDir& dir, int rank, Progress progress,
                                        Clock& clock) {
  TY_RETURN_IF_ERROR(dir.CreateRankDirectory(rank));
  const std::string path = dir.MetricsPath(rank);
  TY_ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_APPEND));
  TY_ASSIGN_OR_RETURN(const int64_t end, EndOfWholeLines(path));
  if (ftruncate(fd.get(), end) != 0) return ErrnoStatus(errno, "cannot truncate", path);
  Reporter reporter(dir, rank, std::move(fd), std::move(progress), clock);
  reporter.window_uptime_ = clock.Uptime();
  reporter.log_uptime_ = clock.Uptime();
  reporter.log_pause_ = kLogPauseMin;
  TY_RETURN_IF_ERROR(reporter.EnterState(Progress::State::kStarting));
  return reporter;
}

void Reporter::AddMetric(int64_t step, absl::string_view name, double value) {
  if (rank_ != 0) return;
  if (buffer_.size() > kMaxBufferBytes) {
    ++lost_lines_;
    return;
  }
  run_dir::AppendMetricLine({step, std::string(name), value, absl::ToUnixMicros(clock_->Now())},
                            buffer_);
}

void Reporter::AddSpeed(const FinishedStep& report, absl::Duration now) {
  const absl::Duration window = now - window_uptime_;
  if (window <= absl::ZeroDuration()) return;
  const absl::Duration waited = report.data_wait - window_data_wait_;
  progress_.samples_per_s = static_cast<double>(window_rows_) / absl::ToDoubleSeconds(window);
  progress_.data_wait_fraction = absl::FDivDuration(waited, window);
  AddMetric(report.step, "samples_per_s", progress_.samples_per_s);
  AddMetric(report.step, "data_wait_fraction", progress_.data_wait_fraction);
  window_uptime_ = now;
  window_data_wait_ = report.data_wait;
  window_rows_ = 0;
}

void Reporter::LogTraining(const FinishedStep& report, absl::Duration now) {
  if (rank_ != 0 || now - log_uptime_ < log_pause_) return;
  log_uptime_ = now;
  log_pause_ = std::min(2 * log_pause_, kLogPauseMax);
  LogInfo("trained", {{"step", absl::StrCat(report.step)},
                      {"epoch", absl::StrCat(report.epoch + 1)},
                      {"loss", absl::StrFormat("%.4g", report.loss)},
                      {"samples_per_s", absl::StrFormat("%.4g", progress_.samples_per_s)}});
}

absl::Status Reporter::StepDone(const FinishedStep& report) {
  const absl::Duration now = clock_->Uptime();
  progress_.step = report.step;
  progress_.epoch = report.epoch;
  window_rows_ += report.rows;
  AddMetric(report.step, "train.loss", report.loss);
  AddMetric(report.step, "train.accuracy", report.accuracy);
  AddMetric(report.step, "lr", report.lr);
  if (progress_.state != Progress::State::kRunning) {
    // This is the first step, or the first after an evaluation or a checkpoint. Their time does not
    // count as training.
    window_uptime_ = now;
    window_data_wait_ = report.data_wait;
    window_rows_ = 0;
    return EnterState(Progress::State::kRunning);
  }
  const bool is_time = now - window_uptime_ >= kProgressInterval;
  if (is_time) {
    AddSpeed(report, now);
    LogTraining(report, now);
  }
  if (is_time || now - flush_uptime_ >= kFlushInterval) TY_RETURN_IF_ERROR(Flush());
  if (!is_time) return Promise(running_silence_);
  silence_ = running_silence_;
  return WriteProgress();
}

absl::Status Reporter::EnterState(Progress::State state) {
  TY_RETURN_IF_ERROR(Flush());
  // Within a state, the last promise remains valid.
  if (state != progress_.state) silence_ = kPhaseSilence;
  if (state == Progress::State::kRunning) silence_ = running_silence_;
  progress_.state = state;
  return WriteProgress();
}

absl::Status Reporter::Promise(absl::Duration silence) {
  // The time changes a little in every step, and the promise has room for that.
  const bool is_much_shorter = silence < kMuchShorter * promised_;
  const bool is_much_longer = silence > kMuchLonger * promised_;
  const bool is_old = clock_->Uptime() - progress_uptime_ >= kProgressInterval;
  silence_ = silence;
  return is_old || is_much_shorter || is_much_longer ? WriteProgress() : absl::OkStatus();
}

absl::Status Reporter::Flush() {
  flush_uptime_ = clock_->Uptime();
  if (buffer_.empty()) return absl::OkStatus();
  const std::string path = dir_.MetricsPath(rank_);
  TY_ASSIGN_OR_RETURN(const int64_t size_before, FileSize(path));
  const absl::Status status = WriteFully(metrics_.get(), buffer_, path);
  if (status.ok()) {
    buffer_.clear();
  } else {
    // Somebody may free space on a full disk, so what was not written is kept, and the training
    // continues.
    TY_ASSIGN_OR_RETURN(const int64_t size_after, FileSize(path));
    buffer_.erase(0, static_cast<size_t>(size_after - size_before));
  }
  if (!status.ok() && !IsDiskFull(status)) return status;
  if (status.ok() != disk_full_.ok()) NoteDisk(status);
  return absl::OkStatus();
}

void Reporter::NoteDisk(const absl::Status& status) {
  disk_full_ = status;
  if (!status.ok()) {
    LogWarning("metrics wait", {{"error", std::string(status.message())}});
  } else if (lost_lines_ > 0) {
    LogWarning("metrics were lost while the disk was full",
               {{"points", absl::StrCat(lost_lines_)}});
    lost_lines_ = 0;
  }
  // Somebody who watches the job is told soon.
  progress_uptime_ = -absl::InfiniteDuration();
}

std::string Reporter::DiskFullText() const {
  std::vector<std::string> parts;
  if (!checkpoint_status_.ok()) parts.push_back("no checkpoint can be written");
  if (!disk_full_.ok()) parts.push_back("metrics wait");
  if (lost_lines_ > 0) parts.push_back(absl::StrCat(lost_lines_, " points of them are lost"));
  if (parts.empty()) return "";
  const absl::Status& status = disk_full_.ok() ? checkpoint_status_ : disk_full_;
  return absl::StrCat(absl::StrJoin(parts, ", "), ": ", status.message());
}

absl::Status Reporter::Close() {
  progress_.state = Progress::State::kFinished;
  silence_ = kFinishedSilence;
  TY_RETURN_IF_ERROR(Flush());
  if (!buffer_.empty()) return error::DiskFull(dir_.MetricsPath(rank_));
  return WriteProgress();
}

absl::Status Reporter::WriteProgress() {
  progress_uptime_ = clock_->Uptime();
  promised_ = silence_;
  progress_.silent_until_boottime_us = absl::ToInt64Microseconds(progress_uptime_ + silence_);
  progress_.rss_bytes = ResidentBytes();
  progress_.update_time_us = absl::ToUnixMicros(clock_->Now());
  progress_.disk_full = DiskFullText();
  // A run that was started by hand has no space set aside for its records.
  absl::Status status = run_dir::WriteProgress(dir_, rank_, progress_);
  return IsDiskFull(status) ? absl::OkStatus() : status;
}

}  // namespace trainyard::trainer
